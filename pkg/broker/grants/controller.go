package grants

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Controller records the grants of consumers, and their terms, in the broker's state.
type Controller struct {
	cached client.Reader
	state  *state.Federation
	pods   *requeue.Pods
	// consumers is told the namespaces and the weights of consumers.
	consumers *requeue.Consumers
	// mu is held from a read until the state has it, so that no older read replaces a newer one.
	mu sync.Mutex
}

// New returns a Controller, which does nothing before SetUp. The reader reads from the cache.
func New(cached client.Reader, known *state.Federation, pods *requeue.Pods, consumers *requeue.Consumers) *Controller {
	return &Controller{cached: cached, state: known, pods: pods, consumers: consumers}
}

// SetUp registers the controller with the manager; it runs on the leader. Its keys are ids of consumers.
func (c *Controller) SetUp(mgr manager.Manager) error {
	key := func(id func(client.Object) string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if name := id(o); name != "" {
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
			}
			return nil
		})
	}
	labelled := func(o client.Object) string { return o.GetLabels()[consts.RemoteClusterID] }
	err := ctrl.NewControllerManagedBy(mgr).Named("grant").
		Watches(&authv1beta1.ResourceSlice{}, key(consumerOf)).
		Watches(&corev1.Namespace{}, key(labelled),
			builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.ConsumerCluster{}, &handler.EnqueueRequestForObject{},
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{RateLimiter: requeue.Failures(), SkipNameValidation: ptr.To(true)}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("grants of consumers: %w", err)
	}
	return nil
}

// Reconcile reads the grant of a consumer again, and has its pods tried that fit into it now.
func (c *Controller) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	if err := c.read(ctx, r.Name); err != nil {
		return ctrl.Result{}, err
	}
	c.pods.Unassigned()
	return ctrl.Result{}, nil
}

// Ensure reads the grant of a consumer if it was not read yet. The read waits until the caches are filled.
func (c *Controller) Ensure(ctx context.Context, consumer string) error {
	if c.state.HasGrant(consumer) {
		return nil
	}
	return c.read(ctx, consumer)
}

func (c *Controller) read(ctx context.Context, consumer string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var namespaces corev1.NamespaceList
	ofConsumer := client.MatchingLabels{consts.RemoteClusterID: consumer}
	if err := c.cached.List(ctx, &namespaces, ofConsumer, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("namespaces of consumer %s: %w", consumer, err)
	}
	var of v1alpha1.ConsumerCluster
	if err := c.cached.Get(ctx, client.ObjectKey{Name: consumer}, &of); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("ConsumerCluster %s: %w", consumer, err)
	}
	terms := fairshare.TermsOf(&of.Spec)
	c.state.SetTerms(consumer, terms)
	c.consumers.Set(consumer, terms.Weight, namesOf(namespaces.Items, consumer))
	if len(namespaces.Items) == 0 {
		c.state.SetGrant(consumer, nil)
		return nil
	}
	grant := scheduler.Grant{ByCreator: map[string]resources.Amounts{}}
	for i := range namespaces.Items {
		if placement.TenantOf(&namespaces.Items[i]) != consumer {
			continue
		}
		var slices authv1beta1.ResourceSliceList
		if err := c.cached.List(ctx, &slices, client.InNamespace(namespaces.Items[i].Name), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("ResourceSlices of consumer %s: %w", consumer, err)
		}
		for k := range slices.Items {
			slice := &slices.Items[k]
			if consumerOf(slice) == consumer && placement.IsAccepted(slice, authv1beta1.ResourceSliceConditionTypeResources) {
				addTo(&grant, slice)
			}
		}
	}
	c.state.SetGrant(consumer, &grant)
	return nil
}

// namesOf returns the names of the namespaces that have pods of a consumer.
func namesOf(namespaces []corev1.Namespace, consumer string) (names []string) {
	for i := range namespaces {
		if placement.ConsumerOf(&namespaces[i]) == consumer {
			names = append(names, namespaces[i].Name)
		}
	}
	return names
}

// addTo adds a slice's resources to the grant of its consumer. Liqo's quotas do not count pods, so a slice that does
// not name them grants any number.
func addTo(grant *scheduler.Grant, slice *authv1beta1.ResourceSlice) {
	creator, granted := placement.AccountOfSlice(slice).Creator, resources.RoundUp(slice.Status.Resources)
	grant.ByCreator[creator] = sumOf(grant.ByCreator[creator], granted)
	grant.Sum = sumOf(grant.Sum, granted)
}

// sumOf adds the amounts that a slice grants to the sum of the others, which is nil if there are none.
func sumOf(others, granted resources.Amounts) resources.Amounts {
	if others == nil {
		return maps.Clone(granted)
	}
	sum := maps.Clone(others)
	sum.Add(granted)
	_, here := granted[corev1.ResourcePods]
	if _, there := others[corev1.ResourcePods]; !here || !there {
		delete(sum, corev1.ResourcePods)
	}
	return sum
}

// consumerOf returns the consumer that a slice names which was replicated from another cluster; "" for those that this
// cluster sends. It counts only in the tenant namespace of that consumer.
func consumerOf(o client.Object) string {
	slice, ok := o.(*authv1beta1.ResourceSlice)
	if !ok || slice.Labels[consts.ReplicationStatusLabel] != "true" {
		return ""
	}
	return placement.ConsumerOfSlice(slice)
}
