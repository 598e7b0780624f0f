package pods

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/podtrace"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/tracing"
)

// invalidRecheck is how often a pod is tried whose criteria cannot be read, or whose assignment is not valid. A change
// of it or of its policy requeues it; one of its namespace does not.
const invalidRecheck = 5 * time.Minute

// deferredRecheck is how often a pod is tried whose filter is compiled later, plus jitter of up to the same time again,
// so that the pods of one owner are not tried together.
const deferredRecheck = 15 * time.Second

// budgetRecheck is how often a new pod is tried whose consumer has used its budget, plus jitter of up to the same time.
const budgetRecheck = time.Minute

// heldUnseen is for how long a pod waits for its turn before its condition says so.
const heldUnseen = time.Second

// bindingRecheck is how soon a pod is tried again that other pods with claims are before, plus jitter.
const bindingRecheck = 200 * time.Millisecond

// assign chooses a provider for a pod and writes the choice.
func (c *Controller) assign(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	endBinding, begun := c.beginBinding(ctx, pod)
	if !begun {
		return ctrl.Result{RequeueAfter: wait.Jitter(bindingRecheck, 1)}, ctx.Err()
	}
	defer endBinding()
	if missing := c.Guard.Missing(); missing != "" {
		return ctrl.Result{RequeueAfter: admission.Recheck}, c.waits(ctx, pod, "Unguarded", missing)
	}
	// 1. The criteria of the pod and its policy.
	began := time.Now()
	criteria, namespace, err := c.criteriaOf(ctx, pod)
	if errors.Is(err, placement.ErrDeferred) {
		return ctrl.Result{RequeueAfter: wait.Jitter(deferredRecheck, 1)}, c.waits(ctx, pod, "FilterDeferred", err.Error())
	}
	if errors.Is(err, placement.ErrVolume) { // A change of the claim requeues the pod.
		c.Metrics.invalid(time.Since(began))
		return ctrl.Result{RequeueAfter: invalidRecheck}, c.waits(ctx, pod, "VolumeNotAvailable", err.Error())
	}
	if errors.Is(err, placement.ErrInvalid) {
		c.Metrics.invalid(time.Since(began))
		return ctrl.Result{RequeueAfter: invalidRecheck}, c.waits(ctx, pod, "InvalidCriteria", err.Error())
	}
	if err != nil {
		return ctrl.Result{}, err
	}

	// 2. The grant and the budget of its consumer, if it is a new pod.
	of := criteria.Pod(pod, namespace)
	if of.First && of.Account != (scheduler.Account{}) && c.Grants != nil {
		if err := c.Grants.Ensure(ctx, of.Account.Consumer); err != nil {
			return ctrl.Result{}, err
		}
	}

	if of.First && c.OverBudget != nil {
		if why := c.OverBudget(ctx, of.Consumer); why != "" {
			c.State.Hold(of)
			return ctrl.Result{RequeueAfter: wait.Jitter(budgetRecheck, 1)}, c.waits(ctx, pod, v1alpha1.ReasonBudgetUsed, why)
		}
	}

	// 3. The decision, which reserves the capacity.
	d := c.State.Assume(of, criteria.Policy)
	decided := time.Now()
	switch {
	case d.Err != nil:
		c.Metrics.invalid(decided.Sub(began))
		return ctrl.Result{}, c.waits(ctx, pod, "InvalidCriteria", d.Err.Error())
	case d.Beyond != "":
		c.Metrics.unassignable(decided.Sub(began), nil)
		return ctrl.Result{}, c.waits(ctx, pod, v1alpha1.ReasonBeyondGrant, d.Beyond)
	case d.Held != "":
		c.Requeue.Unassigned()
		if d.HeldFor < heldUnseen { // Most go in a moment.
			c.State.ObserveWaits(pod)
			return ctrl.Result{RequeueAfter: heldUnseen}, nil
		}
		return ctrl.Result{}, c.waits(ctx, pod, v1alpha1.ReasonHeld, d.Held)
	case d.VirtualNode == "":
		c.Metrics.unassignable(decided.Sub(began), d.Verdicts)
		reason, message := c.unassignable(pod, &d)
		return ctrl.Result{}, c.waits(ctx, pod, reason, message)
	}
	c.Metrics.decision.Observe(decided.Sub(began).Seconds())

	// 4. The choice is written.
	c.reports.Drop(client.ObjectKeyFromObject(pod))
	ctx, span := podtrace.Assign(ctx, c.Tracer, &podtrace.Choice{
		Pod: pod, Namespace: namespace, Policy: criteria.Policy, Decision: &d,
		EvictedAt: c.State.Pod(pod.UID).EvictedAt, Began: began, Decided: decided,
	})
	err = c.bindVolumes(ctx, criteria.Claims, d.Provider)
	endBinding() // The pod counts as assumed.
	if err != nil {
		c.unreserve(pod)
	} else {
		err = c.writeAssignment(ctx, pod, &d)
	}
	tracing.End(span, err)
	if kerrors.IsInvalid(err) { // The annotations of the pod leave no space for the broker's (ValidateAnnotationsSize in apimachinery).
		message := "the assignment cannot be written: " + err.Error()
		return ctrl.Result{RequeueAfter: invalidRecheck}, c.waits(ctx, pod, "InvalidAssignment", message)
	}
	return ctrl.Result{}, err
}

// writeAssignment writes the VirtualNode label, by which the virtual kubelet there forwards the pod.
func (c *Controller) writeAssignment(ctx context.Context, pod *corev1.Pod, d *scheduler.Decision) error {
	annotations := clearedByLeaving()
	annotations[v1alpha1.DecisionAnnotation] = d.Short()
	annotations[v1alpha1.AssignedAtAnnotation] = c.Clock.Now().UTC().Format(time.RFC3339Nano)
	annotations[v1alpha1.UnreachableAnnotation], annotations[v1alpha1.ReclaimedAnnotation] = nil, nil
	at := scheduler.Place{Provider: d.Provider, VirtualNode: d.VirtualNode}
	if remote, _ := c.State.RemoteNamespace(at, pod.Namespace); remote != "" {
		annotations[v1alpha1.RemoteNamespaceAnnotation] = remote
	}
	podtrace.SetTraceparent(ctx, pod, annotations)
	patching, span := tracing.OrNone(c.Tracer).Start(ctx, podtrace.SpanPatch)
	err := c.write.Patch(patching, pod, map[string]any{
		"labels": map[string]any{
			v1alpha1.VirtualNodeLabel: d.VirtualNode, v1alpha1.ProviderLabel: d.Provider,
			// The virtual kubelet would set it right after.
			consts.LocalPodLabelKey: consts.LocalPodLabelValue,
		},
		"annotations": annotations,
	})
	tracing.End(span, err)
	switch {
	case kerrors.IsNotFound(err) || kerrors.IsForbidden(err) || kerrors.IsInvalid(err):
		c.unreserve(pod)
		return err
	case err != nil:
		// It may have been written. A conflict, too, may be with itself: client-go repeats a request after an answer
		// with Retry-After, although the first one may have taken effect.
		c.State.ObserveUncertain(pod.UID)
		return err
	}
	c.Events.Event(pod, corev1.EventTypeNormal, "Assigned", d.Message())
	if bound := placement.Condition(pod, corev1.PodScheduled); bound != nil && pod.Annotations[v1alpha1.AssignedAtAnnotation] == "" {
		c.Metrics.wait.Observe(max(0, c.Clock.Since(bound.LastTransitionTime.Time).Seconds()))
	}
	if took, moved := c.State.ObserveAssignmentWritten(pod.UID); moved {
		c.Metrics.move.Observe(took.Seconds())
	}
	c.Log.V(1).Info("Assigned a pod", "pod", client.ObjectKeyFromObject(pod), "virtualNode", d.VirtualNode, "decision", d.Short())
	return nil
}

// unreserve frees the capacity of a decision that was not written.
func (c *Controller) unreserve(pod *corev1.Pod) {
	c.State.Forget(pod.UID)
	c.Requeue.Unassigned()
}

// resolveUncertain asks the API server whether a decision was written.
func (c *Controller) resolveUncertain(ctx context.Context, pod *corev1.Pod) error {
	var live corev1.Pod
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(pod), &live)
	switch {
	case err != nil && !kerrors.IsNotFound(err):
		return err
	case err == nil && c.observeIfWritten(pod, &live):
		return nil
	}
	c.unreserve(pod)
	c.Queue.Add(client.ObjectKeyFromObject(pod))
	return nil
}

// observeIfWritten reports whether a pod is assigned at the API server, and records the assignment: the cache may not
// show it yet.
func (c *Controller) observeIfWritten(pod, live *corev1.Pod) bool {
	at := placement.AssignedTo(live)
	if live.UID != pod.UID || at == (scheduler.Place{}) {
		return false
	}
	c.State.ObserveWritten(live, at)
	return true
}

// waits requests the write of the reason why no provider was chosen for a pod.
func (c *Controller) waits(ctx context.Context, pod *corev1.Pod, reason, message string) error {
	c.State.ObserveWaits(pod)
	if pod.Annotations[v1alpha1.MovingFromAnnotation] != "" {
		// It has left, and waits like any other pod: its last provider does not matter any more.
		annotations := clearedByLeaving()
		annotations[v1alpha1.DecisionAnnotation] = nil
		if err := c.write.Patch(ctx, pod, map[string]any{"annotations": annotations}); err != nil {
			return err
		}
	} else if placement.Reclaimed(pod) {
		c.requeue(c.State.NextToMove(pod)) // It has left, so another replica may.
	}
	c.reports.Add(pod, reason, message)
	return nil
}
