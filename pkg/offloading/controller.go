package offloading

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// reconcileTimeout bounds the requests of one reconciliation.
const reconcileTimeout = 30 * time.Second

// Config configures the re-offloading.
type Config struct {
	// Consumers selects the consumers whose namespaces are offloaded, by the labels of their ForeignClusters.
	Consumers labels.Selector
	// Mapping is the strategy for the names of namespaces at the providers: DefaultName or EnforceSameName.
	Mapping offloadingv1beta1.NamespaceMappingStrategyType
	// BrokerNode is the name of the broker's Node: pods bound to it are ignored.
	BrokerNode string
}

// reconciler reconciles the namespaces of consumers, each by itself.
type reconciler struct {
	cfg    Config
	client client.Client
	// pods reads the pods of ShadowPods that are not on the broker's node; live reads the API itself.
	pods, live client.Reader
	events     record.EventRecorder
	metrics    *Metrics
	now        func() time.Time
}

// SetUp registers the controller with the manager; it runs on the leader, and counts in metrics. The manager's cache
// has only the pods of the broker's node, so pods that are not bound to it yet are in a cache of their own.
func SetUp(mgr manager.Manager, cfg Config, metrics *Metrics) error {
	pods, err := podsElsewhere(mgr, cfg.BrokerNode)
	if err != nil {
		return err
	}
	r := &reconciler{
		cfg: cfg, client: mgr.GetClient(), pods: pods, live: mgr.GetAPIReader(), metrics: metrics, now: time.Now,
		events: untrusted.Recorder{EventRecorder: mgr.GetEventRecorderFor("liqo-broker")}, //nolint:staticcheck // As the broker's own events.
	}
	byNamespace := func(o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}}
	}
	return ctrl.NewControllerManagedBy(mgr).Named("consumer-namespace").
		For(&corev1.Namespace{}).
		Watches(&offloadingv1beta1.NamespaceOffloading{}, handler.EnqueueRequestsFromMapFunc(
			func(_ context.Context, o client.Object) []reconcile.Request { return byNamespace(o) })).
		Watches(&offloadingv1beta1.NamespaceMap{}, claimed()).
		Watches(&liqov1beta1.ForeignCluster{}, handler.EnqueueRequestsFromMapFunc(r.namespacesOf)).
		WatchesRawSource(source.Kind(pods, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, pod *corev1.Pod) []reconcile.Request { return byNamespace(pod) }))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4, ReconciliationTimeout: reconcileTimeout, SkipNameValidation: ptr.To(true),
		}).
		Complete(r)
}

// podsElsewhere caches the pods that Liqo's ShadowPod controller made and that are not bound to the broker's node.
func podsElsewhere(mgr manager.Manager, brokerNode string) (cache.Cache, error) {
	pods, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Label: labels.SelectorFromSet(labels.Set{consts.ManagedByLabelKey: consts.ManagedByShadowPodValue}),
			Field: fields.AndSelectors(
				fields.OneTermNotEqualSelector("spec.nodeName", brokerNode),
				fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
				fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
			),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of pods not on the broker's node: %w", err)
	}
	return pods, mgr.Add(pods)
}

// Reconcile reconciles one namespace.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var namespace corev1.Namespace
	if err := r.client.Get(ctx, client.ObjectKey{Name: request.Name}, &namespace); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// A report that fails does not delay the rest.
	reported := r.reportClaims(ctx, &namespace)
	result, err := r.offload(ctx, &namespace)
	return result, errors.Join(err, reported)
}

// offload offloads a namespace of a consumer, and recreates pods that were created too early.
func (r *reconciler) offload(ctx context.Context, namespace *corev1.Namespace) (ctrl.Result, error) {
	// 1. Read the objects.
	existing, err := r.offloadingOf(ctx, namespace.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	selected, err := r.selected(ctx, placement.ConsumerOf(namespace))
	if err != nil {
		return ctrl.Result{}, err
	}

	// 2. Write the NamespaceOffloading.
	do, object := plan(namespace, existing, selected, r.cfg.Mapping)
	if do != leave {
		return ctrl.Result{}, r.apply(ctx, namespace, do, existing, object)
	}

	// 3. Recreate the pods that were created too early.
	if existing == nil || !ours(existing) || placement.ConsumerOf(namespace) == "" || !inEffect(namespace, existing) {
		return ctrl.Result{}, nil
	}
	after, err := r.repair(ctx, namespace, existing.CreationTimestamp.Time)
	return ctrl.Result{RequeueAfter: after}, err
}

// offloadingOf reads the NamespaceOffloading of a namespace; nil if there is none.
func (r *reconciler) offloadingOf(ctx context.Context, namespace string) (*offloadingv1beta1.NamespaceOffloading, error) {
	var offloading offloadingv1beta1.NamespaceOffloading
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: consts.DefaultNamespaceOffloadingName}, &offloading)
	switch {
	case kerrors.IsNotFound(err):
		return nil, nil // None is an answer.
	case err != nil:
		return nil, fmt.Errorf("NamespaceOffloading of %s: %w", namespace, err)
	}
	return &offloading, nil
}

// selected reports whether the namespaces of a consumer are offloaded. A consumer without a ForeignCluster is not
// known, and only an empty selector selects it.
func (r *reconciler) selected(ctx context.Context, consumer string) (bool, error) {
	if consumer == "" || r.cfg.Consumers.Empty() {
		return true, nil
	}
	var list liqov1beta1.ForeignClusterList
	if err := r.client.List(ctx, &list); err != nil {
		return false, fmt.Errorf("ForeignClusters: %w", err)
	}
	for i := range list.Items {
		if string(list.Items[i].Spec.ClusterID) == consumer {
			return r.cfg.Consumers.Matches(labels.Set(list.Items[i].Labels)), nil
		}
	}
	return false, nil
}

func (r *reconciler) apply(ctx context.Context, namespace *corev1.Namespace, do action,
	existing, object *offloadingv1beta1.NamespaceOffloading,
) error {
	var err error
	message := ""
	switch do {
	case create:
		err = r.client.Create(ctx, object)
		message = "Offloaded to the providers"
	case update:
		err = r.client.Update(ctx, object)
		message = "Reverted a change of the NamespaceOffloading; to keep changes, remove its label " +
			consts.K8sAppManagedByKey
	case remove:
		// The preconditions: it is still the broker's, and has not changed.
		err = client.IgnoreNotFound(r.client.Delete(ctx, existing, client.Preconditions{
			UID: &existing.UID, ResourceVersion: &existing.ResourceVersion,
		}))
		message = "No longer offloaded to the providers, because it is not a consumer's namespace any more"
	case leave:
		return nil
	}
	if err != nil {
		return fmt.Errorf("NamespaceOffloading of %s: %w", namespace.Name, err)
	}
	r.metrics.offloadings.WithLabelValues(do.String()).Inc()
	r.events.Event(namespace, corev1.EventTypeNormal, "Reoffloading", message)
	return nil
}

// namespacesOf lists the namespaces that a ForeignCluster may concern.
func (r *reconciler) namespacesOf(ctx context.Context, o client.Object) []reconcile.Request {
	foreign, ok := o.(*liqov1beta1.ForeignCluster)
	if !ok || r.cfg.Consumers.Empty() {
		return nil
	}
	requests, err := placement.NamespacesOf(ctx, r.client, string(foreign.Spec.ClusterID))
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the namespaces of a consumer", "consumer", foreign.Spec.ClusterID)
	}
	return requests
}
