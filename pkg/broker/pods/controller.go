package pods

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/grants"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/podpatch"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/podconditions"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/restore"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/termination"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/remap"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Config is everything that the controller needs.
type Config struct {
	Log   logr.Logger
	Clock clock.PassiveClock
	// Client reads from the cache, which holds the pods of the broker's node only. Live reads from the API server.
	Client client.Client
	Live   client.Reader
	Events record.EventRecorder
	// Tracer makes the spans of pods; nil disables tracing.
	Tracer  trace.Tracer
	Metrics *Metrics

	// Guard must be complete for a pod to be assigned or moved; nil is not required.
	Guard    *admission.Guard
	State    *state.Federation
	Restorer *restore.Restorer
	Policies *placement.Policies
	// Grants reads the grants of consumers; with nil no consumer is bounded.
	Grants *grants.Controller
	// OverBudget returns why new pods of a consumer wait, "" if they need not; nil is no budgets.
	OverBudget func(ctx context.Context, consumer string) string
	// Leaving asks providers about the pods that leave them.
	Checker *termination.Checker
	// MapsAddresses means that Liqo's networking module is installed.
	MapsAddresses bool
	// Sibling returns a VirtualNode of a provider; "" if it has none.
	Sibling func(ctx context.Context, provider string) (string, error)
	// RemoteNamespace returns the name of a namespace at a provider, "" if it is not there any more.
	RemoteNamespace func(ctx context.Context, provider, local string) (string, error)

	// Consumers makes the work queue, in which consumers take turns. Queue requeues pods, Requeue many of them, Providers
	// requeues providers.
	Consumers *requeue.Consumers
	Queue     *requeue.Queue
	Requeue   *requeue.Pods
	Providers *requeue.Queue

	// RefusalMemory is how long a VirtualNode that refused a pod, or did not start it, is not tried again for it.
	RefusalMemory time.Duration
	// ProbeInterval is how often a pod is checked whose provider cannot be reached.
	ProbeInterval time.Duration
	// Workers is how many pods are reconciled in parallel.
	Workers int
}

// Controller reconciles the pods of the broker's node.
type Controller struct {
	Config
	write     *podpatch.Writer
	remapper  *remap.Remapper
	reports   *podconditions.Reports
	conflicts workqueue.TypedRateLimiter[types.NamespacedName]
	failures  failureBackoff
	// failed has, by name, the version of a pod with which a step has failed, or met a conflict, as long as the cache
	// shows it.
	failed sync.Map
	// binding has one place for the pod whose volumes are being bound, bindingWaits places for those that wait for it.
	binding, bindingWaits chan struct{}
	// turns is held while replicas are read from the cache and one of them may begin to move. An older read would miss
	// the moves that began since.
	turns sync.Mutex
}

// New returns a Controller, which does nothing before SetUp.
func New(cfg Config) *Controller {
	write := &podpatch.Writer{Client: cfg.Client, Clock: cfg.Clock, Metrics: cfg.Metrics.writes}
	c := &Controller{
		Config: cfg, write: write, conflicts: requeue.Conflicts(), binding: make(chan struct{}, 1),
		bindingWaits: make(chan struct{}, max(1, cfg.Workers/4)),
		reports:      podconditions.New(podconditions.Config{Client: cfg.Client, Events: cfg.Events, Writer: write}),
	}
	c.remapper = remap.New(podIPs{c})
	c.failures = failureBackoff{requeue.Failures(), &c.failed}
	return c
}

// failureBackoff is the backoff of pods whose reconciliation failed. It continues until the cache shows another version
// of the pod, even when a reconciliation in between did not fail: before an eviction the provider is asked each time.
type failureBackoff struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	failed *sync.Map
}

// Forget implements workqueue.TypedRateLimiter. controller-runtime calls it after each reconciliation that did not
// fail.
func (b failureBackoff) Forget(r reconcile.Request) {
	if _, failed := b.failed.Load(r.NamespacedName); !failed {
		b.TypedRateLimiter.Forget(r)
	}
}

// SetUp registers the controller with the manager; it runs on the leader.
func (c *Controller) SetUp(mgr manager.Manager) error {
	pods := ctrl.NewControllerManagedBy(mgr).Named("pod").
		For(&corev1.Pod{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(c.podsOfClaim)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(c.podsOfVolume)).
		WatchesRawSource(c.Queue.Source())
	if c.MapsAddresses {
		pods = pods.Watches(&ipamv1alpha1.IP{}, &handler.EnqueueRequestForObject{}) // It has the name of its pod.
	}
	err := pods.
		WithOptions(controller.Options{
			MaxConcurrentReconciles: c.Workers,
			RateLimiter:             c.failures,
			NewQueue:                c.Consumers.NewQueue,
			SkipNameValidation:      ptr.To(true),
		}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("pod controller: %w", err)
	}
	return c.reports.SetUp(mgr)
}

// Reconcile takes one pod a step further. It reads the state from the API, never from the event, so that it can be
// called at any time and after any restart:
//
//	unassigned → assigned → (must leave) → moving → unassigned → …
func (c *Controller) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	if err := c.Restorer.Restore(ctx); err != nil {
		return ctrl.Result{}, err
	}
	var pod corev1.Pod
	if err := c.Client.Get(ctx, r.NamespacedName, &pod); err != nil {
		if kerrors.IsNotFound(err) {
			c.Checker.Forget(r.NamespacedName)
			c.observeGone(r.NamespacedName, "")
			c.forgetFailures(r)
			return c.observeSuccessor(ctx, r.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	read := pod.ResourceVersion
	if version, failed := c.failed.Load(r.NamespacedName); failed && version != read {
		c.forgetFailures(r)
	}
	if err := c.observeAccount(ctx, &pod); err != nil {
		return ctrl.Result{}, err
	}
	result, err := c.step(ctx, &pod)
	if client.IgnoreNotFound(err) == nil {
		return result, nil
	}
	c.failed.Store(r.NamespacedName, read)
	if kerrors.IsConflict(err) {
		// The pod has changed since it was read; nothing was written.
		return ctrl.Result{RequeueAfter: c.conflicts.When(r.NamespacedName)}, nil
	}
	return result, err
}

// observeAccount records, once, in whose grant a pod counts.
func (c *Controller) observeAccount(ctx context.Context, pod *corev1.Pod) error {
	nowhere := placement.Terminal(pod) && placement.PlaceOf(pod) == (scheduler.Place{}) // It counts nowhere.
	if nowhere || placement.ShadowOf(pod) == "" || c.State.Pod(pod.UID).HasAccount {
		return nil
	}
	namespace, err := c.namespaceOf(ctx, pod)
	switch {
	case errors.Is(err, errNamespaceUnknown):
		return nil // The next reconciliation does it; a decision waits for the namespace.
	case err != nil:
		return err
	}
	c.State.ObserveAccount(pod, placement.AccountOf(pod, namespace))
	return nil
}

// forgetFailures ends the backoffs of a pod.
func (c *Controller) forgetFailures(r reconcile.Request) {
	c.failed.Delete(r.NamespacedName)
	c.conflicts.Forget(r.NamespacedName)
	c.failures.Forget(r)
}

func (c *Controller) step(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	assigned, movingFrom, none := placement.AssignedTo(pod), placement.MovingFrom(pod), scheduler.Place{}
	switch {
	case placement.Terminal(pod):
		c.observeEnded(pod)
		return c.reconcileEnded(ctx, pod, assigned)
	case assigned != none:
		return c.reconcileAssigned(ctx, pod, assigned)
	}
	known := c.State.Pod(pod.UID)
	switch {
	case known.Uncertain:
		return ctrl.Result{}, c.resolveUncertain(ctx, pod)
	case known.Assumed:
		return ctrl.Result{}, nil // It was assigned a moment ago; the cache will show it.
	case pod.DeletionTimestamp != nil && pod.Annotations[v1alpha1.AssignedAtAnnotation] == "":
		return ctrl.Result{}, c.finalize(ctx, pod) // It was nowhere.
	case movingFrom != none && known.Left != movingFrom:
		return c.release(ctx, pod, movingFrom)
	case pod.DeletionTimestamp != nil:
		return ctrl.Result{}, c.finalize(ctx, pod)
	case movingFrom != none && runsOnce(pod):
		return ctrl.Result{}, c.endDisrupted(ctx, pod, movingFrom.VirtualNode) // It has left; its end could not be written then.
	}
	if wait, err := c.awaitEarlier(ctx, pod); err != nil || wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, err
	}
	result, err := c.assign(ctx, pod)
	if kerrors.IsConflict(err) {
		return c.assignAgain(ctx, pod, err)
	}
	return result, err
}

// assignAgain retries an assignment, which was not written because the pod has changed since it was read, with a live
// read of the pod. The cache may not show the change yet: Liqo's ShadowPod controller writes each pod of a consumer
// right after its binding.
//
// Only assignments are retried with a live read. The step after any other would use the cache's pod, which may be
// older, and only for an assignment does the state record that the cache does not show it yet.
func (c *Controller) assignAgain(ctx context.Context, pod *corev1.Pod, conflict error) (ctrl.Result, error) {
	var live corev1.Pod
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(pod), &live); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if c.observeIfWritten(pod, &live) {
		return ctrl.Result{}, nil
	}
	// Another pod of that name may not be on the broker's node.
	if live.UID != pod.UID || placement.Terminal(&live) || placement.PlaceOf(&live) != (scheduler.Place{}) ||
		live.DeletionTimestamp != nil {
		c.unreserve(pod)
		return ctrl.Result{}, conflict
	}
	c.State.Forget(pod.UID) // It is assigned again at once.
	return c.assign(ctx, &live)
}

// observeGone frees the capacity of a pod that needs none any more, and has the unassigned pods tried.
func (c *Controller) observeGone(name types.NamespacedName, uid types.UID) {
	c.remapper.Forget(name)
	c.reports.Drop(name)
	if c.State.ObserveGone(name, uid) {
		c.Requeue.Unassigned()
		c.requeueReplicasIn(name.Namespace)
	}
}

// keptRecheck is how often a part of a grant that is kept is checked again: the cache of ShadowPods may lag behind the
// cache of pods.
const keptRecheck = 2 * time.Second

// observeSuccessor frees the part of a grant that a deleted pod had, if no other pod is made from its ShadowPod,
// because that is gone, too.
func (c *Controller) observeSuccessor(ctx context.Context, name types.NamespacedName) (ctrl.Result, error) {
	kept := c.State.KeptForSuccessor(name)
	if kept == "" {
		return ctrl.Result{}, nil
	}
	shadow := placement.ShadowPodMetadata()
	err := c.Client.Get(ctx, name, shadow)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("ShadowPod %s: %w", name, err) // It is kept; the pod is reconciled again.
	}
	if err == nil && shadow.UID == kept && shadow.DeletionTimestamp == nil {
		return ctrl.Result{RequeueAfter: keptRecheck}, nil
	}
	c.State.ObserveNoSuccessor(name)
	c.Requeue.Unassigned()
	return ctrl.Result{}, nil
}

// observeEnded is observeGone for a terminal pod. An assigned one holds its capacity until it is deleted.
func (c *Controller) observeEnded(pod *corev1.Pod) {
	name, at := client.ObjectKeyFromObject(pod), placement.PlaceOf(pod)
	if at == (scheduler.Place{}) {
		c.observeGone(name, pod.UID)
		return
	}
	c.remapper.Forget(name)
	c.reports.Drop(name)
	if c.State.ObserveEnded(pod, at) {
		c.Requeue.Unassigned() // It is not counted as a pod any more.
		c.requeueReplicasIn(name.Namespace)
	}
}

// errNamespaceUnknown means that the cache does not show the namespace of a pod: the two are read by two watches.
var errNamespaceUnknown = errors.New("the pod's namespace is not in the cache yet")

func (c *Controller) namespaceOf(ctx context.Context, pod *corev1.Pod) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	err := c.Client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &namespace)
	if kerrors.IsNotFound(err) {
		// Not the API's error: with that one Reconcile takes the pod itself for deleted, and does not retry.
		return nil, fmt.Errorf("%w: %s", errNamespaceUnknown, pod.Namespace)
	}
	return &namespace, err
}

// criteriaOf returns the criteria of a pod and its policy. The error is a placement.ErrInvalid, with which the rules
// are valid, an errNamespaceUnknown, or an error of the API.
func (c *Controller) criteriaOf(ctx context.Context, pod *corev1.Pod) (placement.Criteria, *corev1.Namespace, error) {
	namespace, err := c.namespaceOf(ctx, pod)
	if err != nil {
		return placement.Criteria{}, nil, err
	}
	criteria, err := c.Policies.CriteriaOf(ctx, pod, namespace)
	return criteria, namespace, err
}
