package offer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

const (
	// reconcileTimeout bounds the requests of one pass over all slices.
	reconcileTimeout = time.Minute
	// afterConflict is how soon a slice that changed while it was decided about is looked at again, at the latest.
	afterConflict = time.Second
)

// Config is what the offers are told.
type Config struct {
	// Class is the class of the ResourceSlices that are decided here.
	Class authv1beta1.ResourceSliceClass
	Rules Rules
	// Interval is the least time between an offer and the next, larger one to the same slice.
	Interval time.Duration
	// IngressClasses and LoadBalancerClasses are offered to every consumer.
	IngressClasses      []liqov1beta1.IngressType
	LoadBalancerClasses []liqov1beta1.LoadBalancerType
}

// reconciler decides about all slices at once: they share one sum.
type reconciler struct {
	cfg    Config
	client client.Client
	// live reads the API itself: decided on a cache that lacks the last offers, two slices could be given the same room.
	live    client.Reader
	events  record.EventRecorder
	metrics *Metrics
	now     func() time.Time
	// asked is what each slice asked for when it was last decided. Only the one worker of the controller uses it.
	asked map[types.NamespacedName]Amounts
}

// SetUp registers the controller with the manager; it runs on the leader, and counts in metrics.
func SetUp(mgr manager.Manager, cfg Config, metrics *Metrics) error {
	r := &reconciler{
		cfg: cfg, client: mgr.GetClient(), live: mgr.GetAPIReader(), metrics: metrics, now: time.Now,
		events: mgr.GetEventRecorderFor("liqo-broker"), //nolint:staticcheck // As the broker's own events.
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("offer").
		Watches(&authv1beta1.ResourceSlice{}, all, builder.WithPredicates(predicate.NewPredicateFuncs(r.concerns))).
		Watches(&authv1beta1.Tenant{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ProviderCluster{}, all, builder.WithPredicates(supplyChanged())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1, ReconciliationTimeout: reconcileTimeout, SkipNameValidation: ptr.To(true),
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, time.Minute),
		}).
		Complete(r)
}

// concerns says whether a slice is one of ours: of the class, and sent here by a consumer.
func (r *reconciler) concerns(o client.Object) bool {
	slice, ok := o.(*authv1beta1.ResourceSlice)
	return ok && slice.Spec.Class == r.cfg.Class && slice.Labels[consts.ReplicationStatusLabel] == "true" &&
		slice.Labels[consts.ReplicationOriginLabel] != "" && slice.Spec.ConsumerClusterID != nil
}

// supplyChanged lets through what changes the sum or the labels: the KPIs in the status change all the time.
func supplyChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.ProviderCluster)
		after, ok2 := e.ObjectNew.(*v1alpha1.ProviderCluster)
		return !ok || !ok2 || before.Generation != after.Generation ||
			!equality.Semantic.DeepEqual(before.Status.Resources.Granted, after.Status.Resources.Granted)
	}}
}

// Reconcile decides about all slices and writes the offers that have changed.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	// 1. What there is, and who asks.
	var providers v1alpha1.ProviderClusterList
	if err := r.client.List(ctx, &providers); err != nil {
		return ctrl.Result{}, fmt.Errorf("ProviderClusters: %w", err)
	}
	available := supplyOf(providers.Items)
	asking, err := r.slices(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}

	// 2. Who gets what.
	now := r.now()
	given := make([]Slice, 0, len(asking))
	asked := make(map[types.NamespacedName]Amounts, len(asking))
	for _, a := range asking {
		s := sliceOf(a.slice, a.fate, r.asked[nameOf(a.slice)], now, r.cfg.Interval)
		given, asked[s.Name] = append(given, s), s.Asked
	}
	offers := Decide(available.sum, r.cfg.Rules, given)

	// 3. The offers are written: what shrinks first, since it is what the others grow by.
	total := available.sum.times(r.cfg.Rules.Overcommit)
	r.metrics.show(total, perConsumer(given, offers))
	w := &round{reconciler: r, spare: total, labels: available.labels(), now: now}
	steps := make([]*step, len(given))
	for i, a := range asking {
		w.spare.take(given[i].Granted)
		steps[i] = &step{slice: a.slice, asked: given[i].Asked, has: given[i].Granted, offer: offers[given[i].Name]}
	}
	for _, s := range steps {
		w.shrink(ctx, s)
	}
	for _, s := range steps {
		w.grow(ctx, s)
	}

	// 4. What was not written is tried again, and those that may be growing soon are looked at again.
	for i, s := range steps {
		if given[i].Resting {
			w.again(restOf(s.slice, now, r.cfg.Interval))
		}
		if s.undone {
			asked[given[i].Name] = r.asked[given[i].Name]
		}
	}
	r.asked = asked
	return ctrl.Result{RequeueAfter: w.after}, errors.Join(w.failures...)
}

// perConsumer adds up what each consumer is offered.
func perConsumer(given []Slice, offers map[types.NamespacedName]Offer) map[string]Amounts {
	out := map[string]Amounts{}
	for i := range given {
		if out[given[i].Consumer] == nil {
			out[given[i].Consumer] = Amounts{}
		}
		out[given[i].Consumer].add(offers[given[i].Name].Granted)
	}
	return out
}

// ask is a slice that takes part.
type ask struct {
	slice *authv1beta1.ResourceSlice
	fate  fate
}

// slices reads those that take part in the decision.
func (r *reconciler) slices(ctx context.Context) ([]ask, error) {
	var list authv1beta1.ResourceSliceList
	if err := r.live.List(ctx, &list, client.MatchingLabels{consts.ReplicationStatusLabel: "true"}); err != nil {
		return nil, fmt.Errorf("ResourceSlices: %w", err)
	}
	var tenants authv1beta1.TenantList
	if err := r.client.List(ctx, &tenants); err != nil {
		return nil, fmt.Errorf("tenants of consumers: %w", err)
	}
	var asking []ask
	for i := range list.Items {
		slice := &list.Items[i]
		if !r.concerns(slice) {
			continue
		}
		if f := fateOf(slice, tenantOf(tenants.Items, slice)); f != ignored {
			asking = append(asking, ask{slice, f})
		}
	}
	return asking, nil
}

// tenantOf is the tenant that a slice belongs to: that of its consumer, in its namespace; nil if there is none.
func tenantOf(tenants []authv1beta1.Tenant, slice *authv1beta1.ResourceSlice) *authv1beta1.Tenant {
	for i := range tenants {
		if tenants[i].Namespace == slice.Namespace && string(tenants[i].Spec.ClusterID) == consumerOf(slice) {
			return &tenants[i]
		}
	}
	return nil
}

func nameOf(slice *authv1beta1.ResourceSlice) types.NamespacedName {
	return client.ObjectKeyFromObject(slice)
}

func consumerOf(slice *authv1beta1.ResourceSlice) string {
	return string(ptr.Deref(slice.Spec.ConsumerClusterID, ""))
}
