package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// Controller reports on PlacementPolicies: whether each is valid, and to how many assigned pods it applies.
type Controller struct {
	client   client.Client
	policies *placement.Policies
	pods     *requeue.Pods
	clock    clock.PassiveClock
	counts   podCounts
	metrics  *Metrics
	// known are the policies as they were reconciled last; of one worker.
	known map[string]*v1alpha1.PlacementPolicy
}

// New returns a Controller, which does nothing before SetUp.
func New(c client.Client, policies *placement.Policies, pods *requeue.Pods, now clock.PassiveClock, metrics *Metrics) *Controller {
	return &Controller{
		client: c, policies: policies, pods: pods, clock: now, metrics: metrics, known: map[string]*v1alpha1.PlacementPolicy{},
	}
}

// SetUp registers the controller with the manager; it runs on the leader.
func (c *Controller) SetUp(mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("policy").
		For(&v1alpha1.PlacementPolicy{}).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 1}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return c.reconcile(ctx, r.Name)
		}))
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	return nil
}

// reconcile writes the status of a policy. When the policy has changed, the pods are requeued.
func (c *Controller) reconcile(ctx context.Context, name string) (ctrl.Result, error) {
	var policy v1alpha1.PlacementPolicy
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, &policy); err != nil {
		// Its pods follow another policy now, or none.
		c.metrics.remove(name)
		c.requeuePods(ctx, c.known[name])
		delete(c.known, name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	updated := policy.DeepCopy()
	valid, reason, message := metav1.ConditionTrue, "Valid", ""
	if _, err := c.policies.Compile(&policy); err != nil {
		valid, reason, message = metav1.ConditionFalse, "Invalid", untrusted.Text(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	meta.SetStatusCondition(&updated.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PolicyValid, Status: valid, Reason: reason, Message: message, ObservedGeneration: policy.Generation,
	})
	if updated.Status.ObservedGeneration != policy.Generation {
		// Assigned pods follow the new rules of moving. Pods that it left unassigned because it was not valid do not
		// wait for capacity.
		c.requeuePods(ctx, c.known[name], &policy)
	}
	c.known[name] = updated
	updated.Status.ObservedGeneration = policy.Generation
	counts, err := c.counts.read(c.clock.Now(), func() (map[string]int32, error) { return c.countPods(ctx) })
	if err != nil {
		return ctrl.Result{}, err
	}
	updated.Status.Pods = counts[name]
	c.metrics.set(name, valid == metav1.ConditionTrue, counts[name])
	if err := c.client.Status().Patch(ctx, updated, client.MergeFrom(&policy)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("status of PlacementPolicy %s: %w", name, err)
	}
	return ctrl.Result{RequeueAfter: countInterval}, nil
}

// requeuePods requeues the pods that one of these states of a policy may apply to: all pods, if one is not known, or
// the namespace of the pod is not.
func (c *Controller) requeuePods(ctx context.Context, states ...*v1alpha1.PlacementPolicy) {
	var list corev1.NamespaceList
	if slices.Contains(states, nil) || c.client.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
		c.pods.All(ctx)
		return
	}
	namespaces := byName(&list)
	c.pods.Each(ctx, func(pod *corev1.Pod) bool {
		namespace, known := namespaces[pod.Namespace]
		return !known || slices.ContainsFunc(states, func(policy *v1alpha1.PlacementPolicy) bool {
			return placement.MayApply(policy, pod, namespace)
		})
	})
}

func byName(list *corev1.NamespaceList) map[string]*corev1.Namespace {
	namespaces := make(map[string]*corev1.Namespace, len(list.Items))
	for i := range list.Items {
		namespaces[list.Items[i].Name] = &list.Items[i]
	}
	return namespaces
}

const (
	// countInterval is how often the pods of every policy are counted.
	countInterval = 30 * time.Second
	// countTTL is how old a count may be that serves several policies.
	countTTL = 10 * time.Second
)

// podCounts are how many assigned pods each policy is for. All policies are counted in one walk over the pods.
type podCounts struct {
	mu     sync.Mutex
	at     time.Time        // Guarded by mu.
	counts map[string]int32 // By policy; replaced, never changed; guarded by mu.
}

func (c *podCounts) read(now time.Time, count func() (map[string]int32, error)) (map[string]int32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts != nil && now.Sub(c.at) < countTTL {
		return c.counts, nil
	}
	fresh, err := count()
	if err != nil {
		return nil, fmt.Errorf("counting the pods of policies: %w", err)
	}
	c.counts, c.at = fresh, now
	return fresh, nil
}

// countPods returns, for every policy, how many assigned pods it is for.
func (c *Controller) countPods(ctx context.Context) (map[string]int32, error) {
	ranked, err := c.policies.Ranked(ctx)
	if err != nil {
		return nil, err
	}
	var namespaces corev1.NamespaceList
	var pods corev1.PodList
	if err := c.client.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	if err := c.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	known := byName(&namespaces)
	counts, perConsumer := map[string]int32{}, map[string]int32{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		namespace, found := known[pod.Namespace]
		if !found || pod.Labels[v1alpha1.VirtualNodeLabel] == "" || placement.Terminal(pod) {
			continue
		}
		perConsumer[placement.ConsumerOf(namespace)]++
		if policy, err := ranked.Of(pod, namespace); err == nil && policy != nil {
			counts[policy.Name]++
		}
	}
	for i := range ranked {
		if ranked[i].Spec.Selection != nil {
			for _, consumer := range ranked[i].Spec.Consumers {
				counts[ranked[i].Name] += perConsumer[consumer]
			}
		}
	}
	return counts, nil
}
