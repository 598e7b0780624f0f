package broker

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// suspicionCheck is how often a pod is looked at while the broker suspects itself.
const suspicionCheck = 5 * time.Second

// moveReason is why a pod leaves the provider where it is; the values are those of the metric's label.
type moveReason string

// The reasons to move.
const (
	stay              moveReason = ""
	moveUnreachable   moveReason = "provider_unreachable"
	moveDrained       moveReason = "provider_drained"
	moveRefused       moveReason = "refused"
	movePending       moveReason = "pending_too_long"
	moveNoVirtualNode moveReason = "virtual_node_gone"
)

// situation is what must be known of the provider of an assigned pod to say whether it is to leave.
type situation struct {
	// known is false when the VirtualNode of the pod does not exist.
	known bool
	// lost is when the provider became unreachable; zero if it is reachable. believed is since when nothing but that
	// explains it: what was so while the broker suspected itself does not count.
	lost, believed time.Time
	// suspended says that nobody is moved away from unreachable providers, because the broker suspects itself.
	suspended bool
	draining  bool
}

// whyLeave says whether an assigned pod must leave at now, and if not, when to ask again at the latest (0: when
// something changes). A pod that is done never leaves, nor does one that is being deleted, as long as there is somebody to
// end it.
func whyLeave(pod *corev1.Pod, s situation, r placement.Rules, now time.Time) (moveReason, time.Duration) {
	switch {
	case placement.Terminal(pod):
		return stay, 0
	case !s.known:
		return moveNoVirtualNode, 0 // Nobody else ends a pod there that is being deleted.
	case pod.DeletionTimestamp != nil:
		return stay, 0
	case !s.lost.IsZero():
		// Nothing can be said of a pod that cannot be seen: neither refused nor pending.
		return whyFail(s, r, now)
	case refusedBy(pod) == pod.Labels[v1alpha1.VirtualNodeLabel]:
		return moveRefused, 0
	case s.draining:
		return moveDrained, 0
	case pod.Status.Phase == corev1.PodPending && r.PendingTimeout > 0:
		if left := r.PendingTimeout - now.Sub(assignedAt(pod)); left > 0 {
			return stay, left
		}
		return movePending, 0
	}
	return stay, 0
}

// whyFail is whyLeave for a pod of an unreachable provider.
func whyFail(s situation, r placement.Rules, now time.Time) (moveReason, time.Duration) {
	if s.suspended {
		return stay, suspicionCheck // It may end with another provider's return.
	}
	if r.Failover == v1alpha1.FailoverNever {
		return stay, 0
	}
	if left := r.FailoverAfter - now.Sub(s.believed); left > 0 {
		return stay, left
	}
	return moveUnreachable, 0
}

// refusedBy is the VirtualNode whose provider refused the pod since it was assigned; "" if none did.
func refusedBy(pod *corev1.Pod) string {
	condition := podCondition(pod, v1alpha1.ConditionRefused)
	if condition == nil || condition.Status != corev1.ConditionTrue ||
		condition.LastTransitionTime.Time.Before(assignedAt(pod).Truncate(time.Second)) {
		return ""
	}
	virtualNode, _, _ := strings.Cut(condition.Message, ": ")
	return virtualNode
}

// lacksRoom says whether a refusal was one of Liqo's quota (pkg/webhooks/shadowpod), and not of a rule that only this pod
// breaks.
func lacksRoom(pod *corev1.Pod) bool {
	condition := podCondition(pod, v1alpha1.ConditionRefused)
	return condition != nil && strings.Contains(condition.Message, "quota usage exceeded")
}

// assignedAt is when the pod was assigned; its creation if that cannot be read.
func assignedAt(pod *corev1.Pod) time.Time {
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AssignedAtAnnotation])
	if err != nil {
		return pod.CreationTimestamp.Time
	}
	return at
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func podIsReady(pod *corev1.Pod) bool {
	condition := podCondition(pod, corev1.PodReady)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// describe words a reason for people.
func (m moveReason) describe(virtualNode string) string {
	switch m {
	case moveUnreachable:
		return fmt.Sprintf("the provider of %s has been unreachable for too long", virtualNode)
	case moveDrained:
		return fmt.Sprintf("the provider of %s is being drained", virtualNode)
	case moveRefused:
		return fmt.Sprintf("the provider of %s refused the pod", virtualNode)
	case movePending:
		return fmt.Sprintf("the pod was Pending at %s for too long", virtualNode)
	case moveNoVirtualNode:
		return fmt.Sprintf("the VirtualNode %s does not exist", virtualNode)
	default:
		return ""
	}
}

// conditionChanged sets a condition and says whether anything but its time has changed.
func conditionChanged(conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus, reason, message string,
	generation int64,
) bool {
	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
	})
}
