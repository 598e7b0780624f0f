// Package podconditions writes on pods why they wait for a provider.
package podconditions

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/podpatch"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

const (
	// reportsPerSecond and reportsBurst limit the writes of reports, well below --client-qps: the messages of all pods
	// that wait may change at once.
	reportsPerSecond = 20
	reportsBurst     = 100
	// reportWorkers is how many reports are written in parallel.
	reportWorkers = 2
	// settleTime is how long another message of the same reason must hold until it is written: longer than a pod waits
	// until it is tried without a change (pkg/broker/state). A provider that is away for a moment is no news.
	settleTime = time.Minute
)

// The reasons of pods that fit nowhere now. BackOff means that one fits again when the delay of a try is over
// (pkg/backoff).
const (
	NoProviderFits = "NoProviderFits"
	BackOff        = "BackOff"
)

// Config is everything that Reports need.
type Config struct {
	// Client reads from the cache.
	Client client.Client
	Events record.EventRecorder
	Writer *podpatch.Writer
}

// Reports are the reasons why pods wait that are not written yet, the last of each pod. They are written by workers of
// their own: many pods that no provider fits would otherwise take the workers and the requests of assignments.
type Reports struct {
	Config

	queue     requeue.Queue
	turns     flowcontrol.RateLimiter
	conflicts workqueue.TypedRateLimiter[types.NamespacedName]

	mu sync.Mutex
	// pending is guarded by mu.
	pending map[types.NamespacedName]report
}

// report is why a pod waits.
type report struct {
	uid             types.UID
	reason, message string
	// since is when the first report was added that is not written yet, or when the previous one was written, if that
	// is later.
	since time.Time
}

// New returns Reports that write nothing before SetUp.
func New(cfg Config) *Reports {
	return &Reports{
		Config:    cfg,
		turns:     flowcontrol.NewTokenBucketRateLimiter(reportsPerSecond, reportsBurst),
		conflicts: requeue.Conflicts(),
		pending:   map[types.NamespacedName]report{},
	}
}

// Add has the reason written why a pod waits, unless the pod has it. A message may quote a tenant's text: it is cut.
func (r *Reports) Add(pod *corev1.Pod, reason, message string) {
	name := client.ObjectKeyFromObject(pod)
	message = untrusted.Text(message)
	if before := placement.Condition(pod, v1alpha1.ConditionAssigned); before != nil &&
		before.Reason == reason && before.Message == message {
		r.Drop(name)
		return
	}
	r.mu.Lock()
	added := report{uid: pod.UID, reason: reason, message: message, since: r.Writer.Clock.Now()}
	if before, pending := r.pending[name]; pending && before.uid == added.uid {
		added.since = before.since
	}
	r.pending[name] = added
	r.mu.Unlock()
	r.queue.Add(name)
}

// Drop forgets the reason of a pod that is not written yet.
func (r *Reports) Drop(name types.NamespacedName) {
	r.conflicts.Forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, name)
}

func (r *Reports) get(name types.NamespacedName) (report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.pending[name]
	return found, ok
}

// done drops a report. A newer one counts from now on.
func (r *Reports) done(name types.NamespacedName, written report) {
	r.conflicts.Forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch newer := r.pending[name]; {
	case newer == written:
		delete(r.pending, name)
	case newer.uid == written.uid:
		newer.since = r.Writer.Clock.Now()
		r.pending[name] = newer
	}
}

// SetUp registers the controller that writes them with the manager; it runs on the leader.
func (r *Reports) SetUp(mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("pod-report").
		WatchesRawSource(r.queue.Source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: reportWorkers, RateLimiter: requeue.Failures(), SkipNameValidation: ptr.To(true),
		}).
		Complete(reconcile.Func(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
			return r.Write(ctx, request.NamespacedName)
		}))
	if err != nil {
		return fmt.Errorf("pod-report controller: %w", err)
	}
	return nil
}

// Write writes on a pod why it waits, and an event when the reason has changed.
func (r *Reports) Write(ctx context.Context, name types.NamespacedName) (ctrl.Result, error) {
	why, pending := r.get(name)
	if !pending {
		return ctrl.Result{}, nil
	}
	var pod corev1.Pod
	if err := r.Client.Get(ctx, name, &pod); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if left := settleTime - r.Writer.Clock.Since(why.since); left > 0 && rewords(&pod, &why) {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if err := r.turns.Wait(ctx); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.Client.Get(ctx, name, &pod); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if pod.UID != why.uid || pod.Labels[v1alpha1.VirtualNodeLabel] != "" || pod.DeletionTimestamp != nil {
		r.done(name, why)
		return ctrl.Result{}, nil
	}
	before := written(&pod)
	err := r.Writer.PatchCondition(ctx, &pod, corev1.PodCondition{
		Type: v1alpha1.ConditionAssigned, Status: corev1.ConditionFalse, Reason: why.reason, Message: why.message,
	})
	switch {
	case kerrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: r.conflicts.When(name)}, nil
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, err
	}
	r.done(name, why)
	if before == nil || before.Reason != why.reason || before.Status != corev1.ConditionFalse {
		r.Events.Event(&pod, corev1.EventTypeWarning, "FailedAssignment", why.message)
	}
	return ctrl.Result{}, nil
}

// written returns the report that a pod has; nil if it has none since its last assignment.
func written(pod *corev1.Pod) *corev1.PodCondition {
	condition := placement.Condition(pod, v1alpha1.ConditionAssigned)
	if condition == nil || condition.LastTransitionTime.Time.Before(v1alpha1.AssignedAt(pod).Truncate(time.Second)) {
		return nil
	}
	return condition
}

// rewords reports whether the pod already has a report that it fits nowhere now, and this one differs only in its text.
func rewords(pod *corev1.Pod, why *report) bool {
	before := written(pod)
	return before != nil && before.Status == corev1.ConditionFalse && before.Reason == why.reason &&
		(why.reason == NoProviderFits || why.reason == BackOff || v1alpha1.IsOfConsumer(why.reason))
}
