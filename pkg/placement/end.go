package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
)

// EndOfShadowPod returns the status of a pod that its provider has removed, by the phase that Liqo keeps in the
// ShadowPod: Liqo makes no pod for a ShadowPod that has ended (shadowpod_controller.go). It is nil if the pod may run
// again: a kubelet writes a terminal phase on each pod that it removes, also when its node is drained. So the phase is
// the end of the pod only if no container would have been restarted after it.
func EndOfShadowPod(phase corev1.PodPhase, policy corev1.RestartPolicy) *corev1.PodStatus {
	ended := false
	switch policy {
	case corev1.RestartPolicyNever:
		ended = TerminalPhase(phase)
	case corev1.RestartPolicyOnFailure:
		ended = phase == corev1.PodSucceeded
	}
	if !ended {
		return nil
	}
	return &corev1.PodStatus{Phase: phase, Reason: forge.RemotePodTerminatedReason}
}

// Stopped reports whether no container of a pod that is being deleted runs any more: a kubelet restarts none, and has
// written that all of them have ended. A pod without container statuses may run: not every component that writes a
// terminal phase ends the containers.
func Stopped(status *corev1.PodStatus) bool {
	containers := slices.Concat(status.InitContainerStatuses, status.ContainerStatuses)
	return TerminalPhase(status.Phase) && len(status.ContainerStatuses) > 0 &&
		!slices.ContainsFunc(containers, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}
