package pods

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/podpatch"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/podtrace"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/termination"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/tracing"
)

// reconcileAssigned measures an assigned pod, and evicts it if there is a reason to.
func (c *Controller) reconcileAssigned(ctx context.Context, pod *corev1.Pod, assigned scheduler.Place) (ctrl.Result, error) {
	// 1. Record its new state.
	c.State.ObserveAssigned(pod, assigned)
	c.traceStart(ctx, pod, assigned.VirtualNode)
	c.measureStart(pod)

	// 2. Its rules, and its provider.
	criteria, namespace, unreadable := c.criteriaOf(ctx, pod)
	if unreadable != nil && !errors.Is(unreadable, placement.ErrInvalid) {
		return ctrl.Result{}, unreadable
	}
	at, err := c.virtualNode(ctx, assigned)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := c.markUnreachable(ctx, pod, at); err != nil {
		return ctrl.Result{}, err
	}

	// 3. Must it leave?
	reason, recheck := eviction.Of(pod, at, criteria.Rules, c.pendingSince(pod), c.Clock.Now())
	if reason == eviction.None && c.isReclaimed(pod, at) {
		reason = eviction.Reclaimed
	}
	if reason == eviction.None {
		c.State.ObserveStays(pod.UID, pod.Status.Phase == corev1.PodRunning)
		c.Checker.Forget(client.ObjectKeyFromObject(pod))
		c.requeueReplicas(pod)
		if err := errors.Join(c.forgetTries(ctx, pod), c.remapAddress(ctx, pod)); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: recheck}, nil
	}
	if pod.DeletionTimestamp == nil && c.Guard.Missing() != "" {
		return ctrl.Result{RequeueAfter: admission.Recheck}, nil
	}
	if (reason == eviction.Drained || reason == eviction.Reclaimed) && !at.Terminating && !isPinned(pod, &criteria, assigned) {
		if wait, err := c.awaitReplicas(ctx, pod, assigned.VirtualNode, &criteria.Rules, reason); err != nil || wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, err
		}
	}
	if staysWithVolumes(reason, pod) {
		if !c.fitsElsewhere(pod, namespace, &criteria, assigned, reason, unreadable) {
			return ctrl.Result{RequeueAfter: longestNowhere}, nil
		}
		// It leaves only if no volume was made: the cache may not show yet that one was.
		if err := c.checkVolumes(ctx, criteria.Claims); err != nil {
			return ctrl.Result{}, err
		}
	}
	if at.UnreachableSince.IsZero() {
		if done, wait, err := c.checkStatus(ctx, pod, assigned, reason, criteria.Rules); done || err != nil {
			return ctrl.Result{RequeueAfter: wait}, err
		}
	}
	if delay := c.State.MoveDelay(pod.UID); delay > 0 {
		return ctrl.Result{RequeueAfter: delay}, nil
	}
	if reason == eviction.Unreachable && pod.DeletionTimestamp == nil &&
		!c.fitsElsewhere(pod, namespace, &criteria, assigned, reason, unreadable) {
		return ctrl.Result{RequeueAfter: c.nowhereRecheck(at.FailoverFrom)}, nil
	}
	return ctrl.Result{}, c.evict(ctx, pod, assigned, reason)
}

// isReclaimed reports whether a pod leaves its provider for others. The provider is not away: then its failover decides.
func (c *Controller) isReclaimed(pod *corev1.Pod, at state.VirtualNode) bool {
	return c.State.Pod(pod.UID).Reclaimed && pod.DeletionTimestamp == nil && !placement.Terminal(pod) &&
		at.Known && at.Confirmed && at.UnreachableSince.IsZero() && !at.Unusable
}

// longestNowhere is the longest time between two tries of a pod that stays at an unreachable provider because no other
// fits.
const longestNowhere = 30 * time.Second

// nowhereRecheck returns after how long such a pod is tried again: the longer its provider has been unreachable, the
// later.
func (c *Controller) nowhereRecheck(since time.Time) time.Duration {
	return min(max(c.ProbeInterval, c.Clock.Since(since)/10), longestNowhere)
}

// fitsElsewhere reports whether another provider fits a pod that is to leave its own, and reserves its capacity there.
// Without one the pod is not evicted: it may still run at its provider, or its volumes are there. Nor is it if its
// criteria are unreadable, for example because its filter is not compiled yet.
func (c *Controller) fitsElsewhere(pod *corev1.Pod, namespace *corev1.Namespace, criteria *placement.Criteria,
	from scheduler.Place, why eviction.Reason, unreadable error,
) bool {
	fits, text := false, ""
	if unreadable == nil {
		d := c.State.ReserveElsewhere(c.elsewhere(criteria.Pod(pod, namespace), from, why), criteria.Policy)
		fits, text, unreadable = d.VirtualNode != "", d.Waiting(), d.Err
	}
	if fits {
		return true
	}
	if unreadable != nil {
		text = unreadable.Error()
	}
	if c.State.ObserveNowhere(pod.UID) {
		c.Events.Eventf(pod, corev1.EventTypeWarning, "MoveWaits", "%s: %s", staying(why, from.VirtualNode), text)
	}
	return false
}

// rejectionProbes is after how many probes it is known that a provider which refuses a question rejects the broker
// altogether.
const rejectionProbes = 3

// checkStatus asks a reachable provider for the status of a pod that is to leave it: the status here may be old,
// because the virtual kubelet is not running, and a pod that has ended must not run again. Done means that the pod is
// not evicted now; it is checked again after wait (0: when something changes).
func (c *Controller) checkStatus(ctx context.Context, pod *corev1.Pod, assigned scheduler.Place, why eviction.Reason,
	rules placement.Rules,
) (done bool, wait time.Duration, err error) {
	at, err := c.placeOf(ctx, pod, assigned)
	if err != nil {
		return true, 0, err
	}
	if !at.known.UnreachableSince.IsZero() || at.mapped && at.pod.RemoteNamespace == "" {
		return false, 0, nil // It cannot be asked, or the pod no longer exists there.
	}
	answer := termination.Answer{}
	if at.mapped {
		answer = c.Checker.Ask(at.pod)
		c.forgetRejection(pod, &at, &answer)
	}
	if answer.Known {
		c.State.ObservePresence(pod, presenceOf(&answer))
	}
	switch {
	case at.lost(&answer, pod.DeletionTimestamp != nil):
		if wait := rejectionProbes*c.ProbeInterval - time.Since(answer.Asked); answer.Refused() && wait > 0 {
			return true, wait, nil
		}
		return false, 0, nil
	case !answer.Known:
		return true, leavingRecheck, nil
	case !answer.Present && why == eviction.PendingTooLong:
		wait = eviction.Queued(pod, at.known, rules, c.Restorer.LeadsSince(), c.Clock.Now())
		if wait > 0 {
			c.Checker.Forget(client.ObjectKeyFromObject(pod))
		}
		return wait > 0, wait, nil
	case answer.Status == nil && why == eviction.PendingTooLong:
		wait := c.unmadeDelay(ctx, pod, assigned, at.known, rules)
		if wait > 0 {
			c.Checker.Forget(client.ObjectKeyFromObject(pod))
		}
		return wait > 0, wait, nil
	case answer.Status == nil:
		return false, 0, nil
	case answer.Ended:
		return true, 0, c.writeEnd(ctx, pod, answer.Status)
	case why == eviction.PendingTooLong && placement.Taken(answer.Status):
		return true, c.ProbeInterval, nil
	case why == eviction.PendingTooLong:
		wait := rules.PendingTimeout - c.Clock.Since(c.pendingSince(pod)) // Its provider may have made it just now.
		if wait <= 0 {
			wait = c.scaleUpDelay(ctx, pod)
		}
		if wait > 0 {
			c.Checker.Forget(client.ObjectKeyFromObject(pod))
		}
		return wait > 0, wait, nil
	case startedOnce(pod, answer.Status):
		return false, 0, c.markDisrupted(ctx, pod, assigned.VirtualNode)
	}
	return false, 0, nil
}

// writeEnd writes the status of a pod that has ended at its provider.
func (c *Controller) writeEnd(ctx context.Context, pod *corev1.Pod, there *corev1.PodStatus) error {
	c.Log.Info("A pod has ended at its provider", "pod", client.ObjectKeyFromObject(pod), "phase", there.Phase)
	err := c.write.PatchStatus(ctx, pod, placement.EndedStatus(there))
	if placement.NeverAccepted(err) {
		// A provider may report a status that the API server never accepts.
		return c.write.PatchStatus(ctx, pod, placement.EndedStatus(&corev1.PodStatus{Phase: there.Phase, Reason: "StatusNotAccepted"}))
	}
	return err
}

// virtualNode returns the state of a VirtualNode and its provider. If the VirtualNode exists and its provider is not
// known yet, nothing speaks against it.
func (c *Controller) virtualNode(ctx context.Context, place scheduler.Place) (state.VirtualNode, error) {
	at := c.State.VirtualNode(place)
	if at.Known {
		return at, nil
	}
	var list offloadingv1beta1.VirtualNodeList
	if err := c.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return at, err
	}
	for i := range list.Items {
		vn := &list.Items[i]
		at.Known = at.Known || vn.Name == place.VirtualNode && string(vn.Spec.ClusterID) == place.Provider
	}
	return at, nil
}

// assignedByThisLeader reports whether this leader assigned a pod. Starts under an earlier leader are not measured:
// that such a pod is ready now does not mean that it was not before.
func (c *Controller) assignedByThisLeader(pod *corev1.Pod) bool {
	return !v1alpha1.AssignedAt(pod).Before(c.Restorer.LeadsSince())
}

// pendingSince returns from when a Pending pod counts as such: from its assignment, or since its provider made it
// again. A new leader cannot know whether it has run there, so the time before does not count.
func (c *Controller) pendingSince(pod *corev1.Pod) time.Time {
	since := c.State.Pod(pod.UID).PendingAgain
	for _, other := range []time.Time{v1alpha1.AssignedAt(pod), c.Restorer.LeadsSince()} {
		if other.After(since) {
			since = other
		}
	}
	return since
}

// measureStart records, once, how long a pod took to start a container: from its assignment until the broker sees it,
// both by the clock of the broker. The time in the status is by the provider's clock. When the pod is Ready depends on
// its own probes.
func (c *Controller) measureStart(pod *corev1.Pod) {
	if !placement.Started(&pod.Status) || !c.assignedByThisLeader(pod) {
		return
	}
	took := max(0, c.Clock.Since(v1alpha1.AssignedAt(pod)))
	if c.State.ObserveStarted(pod, took) {
		c.Metrics.start.Observe(took.Seconds())
	}
}

// traceStart makes, once, the span of the start of a pod that is Running.
func (c *Controller) traceStart(ctx context.Context, pod *corev1.Pod, virtualNode string) {
	if c.Tracer == nil || pod.Status.Phase != corev1.PodRunning || !c.assignedByThisLeader(pod) {
		return
	}
	ctx, ok := tracing.Continue(ctx, pod.Annotations[v1alpha1.TraceparentAnnotation])
	if !ok || !c.State.ObserveRunning(pod) {
		return
	}
	podtrace.Start(ctx, c.Tracer, pod, virtualNode, c.Clock.Now())
}

// markUnreachable removes a pod from its Services while its provider cannot be reached. The virtual kubelet, which
// shows the last status that it read, respects the annotation. A new leader leaves the mark as it is until its own
// probes show whether the provider can be reached.
func (c *Controller) markUnreachable(ctx context.Context, pod *corev1.Pod, at state.VirtualNode) error {
	_, marked := pod.Annotations[v1alpha1.UnreachableAnnotation]
	unreachable := !at.UnreachableSince.IsZero() && !at.MovesSuspended
	if placement.Terminal(pod) || pod.DeletionTimestamp != nil || !at.Confirmed || marked == unreachable {
		return nil
	}
	var since any
	if unreachable {
		since = at.UnreachableSince.UTC().Format(time.RFC3339)
	}
	err := c.write.Patch(ctx, pod, podpatch.Fit(pod, map[string]any{"annotations": map[string]any{v1alpha1.UnreachableAnnotation: since}}))
	if err == nil && unreachable && placement.Ready(pod) {
		err = c.write.PatchCondition(ctx, pod, podpatch.NotReady("ProviderUnreachable", v1alpha1.UnreachableMessage(pod)))
	}
	return err
}
