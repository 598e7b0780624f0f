package pods

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

const (
	// reportsPerSecond and reportsBurst limit the writes of reports, well below --client-qps: the messages of all pods that wait
	// change with each pod that comes or goes.
	reportsPerSecond = 20
	reportsBurst     = 100
	// reportWorkers is how many reports are written in parallel.
	reportWorkers = 2
)

// reports are the reasons why pods wait that are not written yet, the last of each pod. They are written by workers of their
// own: many pods that no provider fits would otherwise take the workers and the requests of assignments.
type reports struct {
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
}

func newReports() *reports {
	return &reports{
		turns:     flowcontrol.NewTokenBucketRateLimiter(reportsPerSecond, reportsBurst),
		conflicts: conflictBackoffs(),
		pending:   map[types.NamespacedName]report{},
	}
}

func (r *reports) add(pod *corev1.Pod, reason, message string) {
	name := client.ObjectKeyFromObject(pod)
	r.mu.Lock()
	r.pending[name] = report{uid: pod.UID, reason: reason, message: message}
	r.mu.Unlock()
	r.queue.Add(name)
}

func (r *reports) drop(name types.NamespacedName) {
	r.conflicts.Forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, name)
}

func (r *reports) get(name types.NamespacedName) (report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.pending[name]
	return found, ok
}

// done drops a report, unless there is a newer one.
func (r *reports) done(name types.NamespacedName, written report) {
	r.conflicts.Forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending[name] == written {
		delete(r.pending, name)
	}
}

// setUpReports registers the controller that writes reports.
func (c *Controller) setUpReports(mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("pod-report").
		WatchesRawSource(c.reports.queue.Source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: reportWorkers, RateLimiter: backoffs(), SkipNameValidation: ptr.To(true),
		}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return c.writeReport(ctx, r.NamespacedName)
		}))
	if err != nil {
		return fmt.Errorf("reports of pods: %w", err)
	}
	return nil
}

// waits has it written on a pod why no provider was chosen.
func (c *Controller) waits(ctx context.Context, pod *corev1.Pod, reason, message string) error {
	if pod.Annotations[v1alpha1.MovingFromAnnotation] != "" {
		// It has left, and waits like any other pod: what becomes of its last provider does not concern it any more.
		annotations := clearedByLeaving()
		annotations[v1alpha1.DecisionAnnotation] = nil
		if err := c.patchPod(ctx, pod, map[string]any{"annotations": annotations}); err != nil {
			return err
		}
	}
	if before := placement.Condition(pod, v1alpha1.ConditionAssigned); before != nil && before.Reason == reason && before.Message == message {
		c.reports.drop(client.ObjectKeyFromObject(pod))
		return nil
	}
	c.reports.add(pod, reason, message)
	return nil
}

// writeReport writes on a pod why it waits, and an event when the reason has changed.
func (c *Controller) writeReport(ctx context.Context, name types.NamespacedName) (ctrl.Result, error) {
	why, pending := c.reports.get(name)
	if !pending {
		return ctrl.Result{}, nil
	}
	if err := c.reports.turns.Wait(ctx); err != nil {
		return ctrl.Result{}, err
	}
	var pod corev1.Pod
	if err := c.Client.Get(ctx, name, &pod); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if pod.UID != why.uid || pod.Labels[v1alpha1.VirtualNodeLabel] != "" || pod.DeletionTimestamp != nil {
		c.reports.done(name, why)
		return ctrl.Result{}, nil
	}
	before := placement.Condition(&pod, v1alpha1.ConditionAssigned)
	err := c.patchCondition(ctx, &pod, corev1.PodCondition{
		Type: v1alpha1.ConditionAssigned, Status: corev1.ConditionFalse, Reason: why.reason, Message: why.message,
	})
	switch {
	case kerrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: c.reports.conflicts.When(name)}, nil
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, err
	}
	c.reports.done(name, why)
	if before == nil || before.Reason != why.reason || before.Status != corev1.ConditionFalse || why.reason == "InvalidCriteria" {
		// The counts in a message change with every pod that comes or goes.
		c.Events.Event(&pod, corev1.EventTypeWarning, "FailedAssignment", why.message)
	}
	return ctrl.Result{}, nil
}
