package pods

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/podpatch"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// movingReason is the reason of the condition Ready of a pod that moves.
const movingReason = "Moving"

// clearStatus removes the status that the last virtual kubelet reported from a pod that leaves it: otherwise the next
// provider would seem to have begun to run the pod. Liqo would map the old address again as soon as its IP object is
// deleted, and never the next one.
func (c *Controller) clearStatus(ctx context.Context, pod *corev1.Pod, from string) error {
	conditions := []any{c.write.Timed(podpatch.NotReady(movingReason, "leaving "+from))}
	for i := range pod.Status.Conditions {
		if kind := pod.Status.Conditions[i].Type; kind != corev1.PodReady && reportedByProvider(pod, kind) {
			conditions = append(conditions, map[string]any{"type": kind, "$patch": "delete"})
		}
	}
	ready := placement.Condition(pod, corev1.PodReady)
	if status := &pod.Status; len(conditions) == 1 && (ready == nil || ready.Reason == movingReason) && isPending(status) &&
		status.PodIP == "" &&
		len(status.ContainerStatuses)+len(status.InitContainerStatuses)+len(status.EphemeralContainerStatuses) == 0 {
		return nil
	}
	// The API server accepts no running container that has terminated before, so their statuses go, too. A pod that
	// does not start at the next provider is then Pending there.
	return c.write.PatchStatus(ctx, pod, map[string]any{
		"phase": corev1.PodPending, "podIP": nil, "podIPs": nil, "reason": nil, "message": nil,
		"containerStatuses": nil, "initContainerStatuses": nil, "ephemeralContainerStatuses": nil,
		"conditions": conditions,
	})
}

func isPending(status *corev1.PodStatus) bool {
	return status.Phase == corev1.PodPending || status.Phase == ""
}

// reportedByProvider reports whether a condition is from the kubelet, or another controller, of the pod's provider.
// Controllers of the consumer set the conditions of readiness gates, kube-scheduler sets PodScheduled.
func reportedByProvider(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	gate := func(g corev1.PodReadinessGate) bool { return g.ConditionType == kind }
	return kind != corev1.PodScheduled && kind != v1alpha1.ConditionAssigned &&
		!strings.HasPrefix(string(kind), v1alpha1.ConditionRefusedPrefix) &&
		!slices.ContainsFunc(pod.Spec.ReadinessGates, gate)
}

// finalize ends a pod that is being deleted and runs nowhere. As a kubelet does (TerminatePod in Kubernetes'
// pkg/kubelet/status), it writes a terminal phase first: the Job controller replaces a pod with podReplacementPolicy
// Failed, or a podFailurePolicy, only then, and removes its finalizer.
func (c *Controller) finalize(ctx context.Context, pod *corev1.Pod) error {
	if !placement.Terminal(pod) {
		if err := c.write.PatchStatus(ctx, pod, map[string]any{"phase": corev1.PodFailed}); err != nil {
			return client.IgnoreNotFound(err)
		}
		pod.Status.Phase = corev1.PodFailed
	}
	return client.IgnoreNotFound(c.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
}
