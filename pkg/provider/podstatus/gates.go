package podstatus

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// reasonGates is the reason of a kubelet for a pod that waits for its readiness gates.
const reasonGates = "ReadinessGatesNotReady"

// keepGates keeps two groups of conditions of the local pod: its readiness gates, which controllers of this cluster
// set, and its disruption. The pod is Ready if all gates are True and its remote pod is Ready apart from the gates: no
// controller sets the gates there.
func keepGates(local *corev1.Pod, status *corev1.PodStatus) {
	if was := Condition(&local.Status, corev1.DisruptionTarget); was != nil && Condition(status, corev1.DisruptionTarget) == nil {
		status.Conditions = append(status.Conditions, *was)
	}
	if len(local.Spec.ReadinessGates) == 0 {
		return
	}
	var missing []string
	changed := Condition(status, corev1.PodReady)
	if changed == nil {
		return
	}
	last := changed.LastTransitionTime
	for _, gate := range local.Spec.ReadinessGates {
		if was := Condition(&local.Status, gate.ConditionType); was != nil {
			status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == gate.ConditionType
			})
			status.Conditions = append(status.Conditions, *was)
		}
		is := Condition(status, gate.ConditionType)
		if is == nil || is.Status != corev1.ConditionTrue {
			missing = append(missing, fmt.Sprintf("%q", gate.ConditionType))
		}
		if is != nil && is.LastTransitionTime.After(last.Time) {
			last = is.LastTransitionTime
		}
	}
	ready := Condition(status, corev1.PodReady)
	if !readyButForGates(status, ready) {
		return
	}
	ready.Status, ready.Reason, ready.Message = corev1.ConditionTrue, "", ""
	if len(missing) > 0 {
		ready.Status, ready.Reason = corev1.ConditionFalse, reasonGates
		ready.Message = fmt.Sprintf("the status of these readiness gates is not True: %v", missing)
	}
	ready.LastTransitionTime = last
}

// readyButForGates reports whether the remote pod is Ready, or would be without readiness gates: a ShadowPod that
// another virtual kubelet made has them.
func readyButForGates(status *corev1.PodStatus, ready *corev1.PodCondition) bool {
	containers := Condition(status, corev1.ContainersReady)
	return ready.Status == corev1.ConditionTrue ||
		ready.Reason == reasonGates && containers != nil && containers.Status == corev1.ConditionTrue
}
