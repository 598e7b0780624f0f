// Package eviction decides why a pod must leave its provider. It has no side effects.
package eviction

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
)

// suspicionRecheck is how often a pod is checked while the broker suspects itself.
const suspicionRecheck = 5 * time.Second

// Reason is why a pod is evicted from its provider; the values are the values of the metric's label.
type Reason string

// The reasons to evict a pod.
const (
	None            Reason = ""
	Unreachable     Reason = "provider_unreachable"
	Drained         Reason = "provider_drained"
	Refused                = Reason(state.Refused)
	PendingTooLong         = Reason(state.PendingTooLong)
	VirtualNodeGone Reason = "virtual_node_gone"
	// Reclaimed: its consumer uses more than its grant, and others have a right to that.
	Reclaimed Reason = "reclaimed"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Unreachable, Drained, Refused, PendingTooLong, VirtualNodeGone, Reclaimed}
}

// Of returns why an assigned pod must leave its VirtualNode at now. pendingSince is when it began to wait there for its
// containers. If the pod stays, Of returns when to check again at the latest (0: when something changes). A terminal
// pod stays, and so does a pod that is being deleted as long as its virtual kubelet can end it.
func Of(pod *corev1.Pod, at state.VirtualNode, rules placement.Rules, pendingSince, now time.Time) (Reason, time.Duration) {
	_, isRefused := refusal.Of(pod)
	switch {
	case placement.Terminal(pod):
		return None, 0
	case !at.Known:
		return VirtualNodeGone, 0 // No virtual kubelet ends a pod there that is being deleted.
	case pod.DeletionTimestamp != nil:
		return lostWhileDeleted(pod, at, rules, now)
	case !at.Confirmed:
		return None, 0 // A new leader has to probe first; the pod is reconciled when that is done.
	case !at.UnreachableSince.IsZero():
		// The status of the pod is not known: neither a refusal nor Pending counts.
		return failoverReason(at, rules, now)
	case isRefused:
		return Refused, 0
	case at.Draining:
		return Drained, 0
	case at.Unusable:
		return None, 0 // Its status may be old. It is reconciled when the provider can be used again.
	case pod.Status.Phase == corev1.PodPending && rules.PendingTimeout > 0 && !placement.Taken(&pod.Status):
		left := rules.PendingTimeout - now.Sub(pendingSince)
		if left > 0 && left <= 2*rules.PendingTimeout { // More is by a clock that was set back since.
			return None, left
		}
		return PendingTooLong, 0
	}
	return None, 0
}

// queuedFor is how many times PendingTimeout a pod may be Pending at most while it is queued.
const queuedFor = 5

// Queued returns how long a pod that was Pending for too long may still wait because it is queued: it does not exist at
// its provider, and other pods start at its VirtualNode. The virtual kubelet forwards the pods of a burst one after the
// other, and each that moved would queue again elsewhere. A pod is not queued when none has started for PendingTimeout
// (the time before this leader began does not count), when a pod has started that was assigned more than PendingTimeout
// later, or when it has waited for queuedFor times PendingTimeout.
func Queued(pod *corev1.Pod, at state.VirtualNode, rules placement.Rules, leadsSince, now time.Time) time.Duration {
	assigned, since := v1alpha1.AssignedAt(pod), at.Started.Last
	if since.Before(leadsSince) {
		since = leadsSince
	}
	if last := assigned.Add((queuedFor - 1) * rules.PendingTimeout); since.After(last) {
		since = last
	}
	overtaken := at.Started.Assigned.Sub(assigned) > rules.PendingTimeout
	if overtaken || since.After(now) { // By a clock that was set back since.
		return 0
	}
	return max(0, rules.PendingTimeout-now.Sub(since))
}

// Unmade returns how long a pod that was Pending for too long may still wait because its provider creates no pods at
// all: the provider has the ShadowPod of this one, and none has started at its VirtualNode since the pod waits. Liqo's
// controller there may be down, or webhooks may block its creations, and it may create the pod at any time: moving the
// pod would end nothing, and have it run twice for a moment. It waits for queuedFor times PendingTimeout, and
// indefinitely if it must never fail over.
func Unmade(at state.VirtualNode, rules placement.Rules, pendingSince, now time.Time) time.Duration {
	waited := now.Sub(pendingSince)
	switch {
	case at.Started.Last.After(pendingSince), waited < 0: // By a clock that was set back since.
		return 0
	case rules.Failover == v1alpha1.FailoverNever:
		return rules.PendingTimeout
	}
	return max(0, min(rules.PendingTimeout, queuedFor*rules.PendingTimeout-waited))
}

// lostWhileDeleted is Of for a pod that is being deleted. Liqo's nodefailure-controller ends such pods of a virtual
// node that is not Ready. The broker's Node is Ready, so a pod whose provider is lost ends like one that moves, after
// its grace period.
func lostWhileDeleted(pod *corev1.Pod, at state.VirtualNode, rules placement.Rules, now time.Time) (Reason, time.Duration) {
	if !at.Confirmed || at.UnreachableSince.IsZero() {
		return None, 0
	}
	reason, recheck := failoverReason(at, rules, now)
	if left := pod.DeletionTimestamp.Sub(now); reason != None && left > 0 {
		return None, left
	}
	return reason, recheck
}

// failoverReason is Of for a pod of an unreachable provider.
func failoverReason(at state.VirtualNode, rules placement.Rules, now time.Time) (Reason, time.Duration) {
	if at.MovesSuspended {
		return None, suspicionRecheck // It may end with another provider's answer.
	}
	if rules.Failover == v1alpha1.FailoverNever {
		return None, 0
	}
	if left := rules.FailoverAfter - now.Sub(at.FailoverFrom); left > 0 {
		return None, left
	}
	return Unreachable, 0
}

// Describe returns a reason for messages.
func (r Reason) Describe(virtualNode string) string {
	switch r {
	case Unreachable:
		return fmt.Sprintf("the provider of %s has been unreachable for longer than failover.after", virtualNode)
	case Drained:
		return fmt.Sprintf("the provider of %s is being drained", virtualNode)
	case Refused:
		return fmt.Sprintf("the provider of %s refused the pod", virtualNode)
	case PendingTooLong:
		return fmt.Sprintf("the pod was Pending at %s for longer than pendingTimeout", virtualNode)
	case VirtualNodeGone:
		return fmt.Sprintf("the VirtualNode %s does not exist", virtualNode)
	case Reclaimed:
		return "its consumer uses more than its grant, and other consumers have a right to that"
	}
	return ""
}
