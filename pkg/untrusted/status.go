package untrusted

import (
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxStatusText is the length that a kubelet keeps of a container's termination message, the longest text of a
	// status (bytes).
	maxStatusText = 4096
	// maxConditions is several times the number that pods have.
	maxConditions = 64
	// maxStatus is half of the limit for all annotations of a pod (bytes).
	maxStatus = 128 << 10
	// reasonStatusTooLarge is the reason of a pod whose status is not shown.
	reasonStatusTooLarge = "StatusTooLarge"
)

// phases are Kubernetes' phases. The API server accepts any text.
var phases = []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown}

// plain reports whether a status has a phase of Kubernetes, and only texts that can be shown.
func plain(status *corev1.PodStatus) bool {
	for text := range texts(status) {
		if *text != Lines(*text) {
			return false
		}
	}
	return slices.Contains(phases, status.Phase)
}

// texts are the texts of a status that people see.
func texts(status *corev1.PodStatus) iter.Seq[*string] {
	return func(yield func(*string) bool) {
		all := []*string{&status.Message, &status.Reason, &status.NominatedNodeName, (*string)(&status.QOSClass)}
		for i := range status.Conditions {
			c := &status.Conditions[i]
			all = append(all, &c.Message, &c.Reason, (*string)(&c.Type), (*string)(&c.Status))
		}
		for _, list := range [][]corev1.ContainerStatus{
			status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
		} {
			for i := range list {
				all = append(all, textsOf(&list[i])...)
			}
		}
		for _, text := range all {
			if !yield(text) {
				return
			}
		}
	}
}

func textsOf(container *corev1.ContainerStatus) []*string {
	all := []*string{&container.Name, &container.Image, &container.ImageID, &container.ContainerID}
	for _, state := range []*corev1.ContainerState{&container.State, &container.LastTerminationState} {
		if w := state.Waiting; w != nil {
			all = append(all, &w.Message, &w.Reason)
		}
		if t := state.Terminated; t != nil {
			all = append(all, &t.Message, &t.Reason, &t.ContainerID)
		}
	}
	return all
}

// PodStatus returns the status of a pod of another cluster with a phase of Kubernetes, texts that can be shown, and
// texts and lists of a bounded length; the given status is not changed. A status that is still too large is reduced to
// the fields that the pod's owner and its services need.
func PodStatus(status *corev1.PodStatus) *corev1.PodStatus {
	if status.Size() <= maxStatusText && plain(status) {
		return status
	}
	out := status.DeepCopy()
	if !slices.Contains(phases, out.Phase) {
		out.Phase = corev1.PodUnknown
	}
	out.Conditions = out.Conditions[:min(len(out.Conditions), maxConditions)]
	for text := range texts(out) {
		*text = Lines(Cut(*text, maxStatusText))
	}
	if out.Size() <= maxStatus {
		return out
	}
	return LeastStatus(out)
}

// LeastStatus returns the fields of a status that the owner of a pod and its services need. out is from PodStatus.
func LeastStatus(out *corev1.PodStatus) *corev1.PodStatus {
	left := &corev1.PodStatus{
		Phase: out.Phase, StartTime: out.StartTime,
		Reason: reasonStatusTooLarge, Message: "the status from the provider cluster is too large, so only some fields are shown",
	}
	if _, err := netip.ParseAddr(out.PodIP); err == nil {
		left.PodIP, left.PodIPs = out.PodIP, []corev1.PodIP{{IP: out.PodIP}}
	}
	if i := slices.IndexFunc(out.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }); i >= 0 {
		ready := out.Conditions[i]
		left.Conditions = []corev1.PodCondition{{
			Type: ready.Type, Status: corev1.ConditionStatus(Cut(string(ready.Status), 64)), Reason: reasonStatusTooLarge,
			LastTransitionTime: ready.LastTransitionTime,
		}}
	}
	return left
}
