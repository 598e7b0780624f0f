package podstatus

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// reasonDeleted is the reason of the condition DisruptionTarget of a pod that was deleted in the remote cluster other
// than by an eviction. An eviction has its own reason.
const reasonDeleted = "DeletedInRemoteCluster"

// Disrupt adds the condition DisruptionTarget for a pod that was deleted in the remote cluster, unless it has one.
func Disrupt(status *corev1.PodStatus, at metav1.Time) {
	disruption := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at.Rfc3339Copy().Time),
		Reason: reasonDeleted, Message: "the pod was deleted in the remote cluster",
	}
	switch was := Condition(status, corev1.DisruptionTarget); {
	case was == nil:
		status.Conditions = append(status.Conditions, disruption)
	case was.Status != corev1.ConditionTrue:
		*was = disruption
	}
}

// reasonUnknown and exitUnknown are the values that a kubelet reports for a container whose end it did not see.
const (
	reasonUnknown = "ContainerStatusUnknown"
	exitUnknown   = 137
)

// Unknown returns the status of a pod whose way of ending is unknown.
func Unknown(status *corev1.PodStatus) *corev1.PodStatus {
	over := status.DeepCopy()
	over.Phase = corev1.PodFailed
	for i := range over.Conditions {
		if c := &over.Conditions[i]; (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status == corev1.ConditionTrue {
			c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionFalse, "PodFailed", metav1.Now()
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{over.InitContainerStatuses, over.ContainerStatuses} {
		for i := range statuses {
			statuses[i].Ready, statuses[i].Started = false, ptr.To(false)
			if statuses[i].State.Terminated == nil {
				statuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: exitUnknown, Reason: reasonUnknown, Message: placement.MessageEndUnknown,
				}}
			}
		}
	}
	return over
}
