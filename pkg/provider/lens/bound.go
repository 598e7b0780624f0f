package lens

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
)

const (
	// maxStatusText is what a kubelet keeps of a container's termination message, the longest text of a status (bytes).
	maxStatusText = 4096
	// maxConditions is several times what pods have.
	maxConditions = 64
	// maxStatus is half of what all annotations of a pod may have (bytes).
	maxStatus = 128 << 10
	// reasonStatusTooLarge is the reason of a pod whose status is not shown.
	reasonStatusTooLarge = "StatusTooLarge"
)

// BoundedEvents returns a reflector of events whose texts are cut as the API server would have them (events.k8s.io/v1).
// In their first version, which Liqo writes, events have no bound.
func BoundedEvents(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		Must(opts.RemoteFactory.Core().V1().Events().Informer().SetTransform(boundEvent))
		return next(opts)
	}
}

// boundEvent is a cache.TransformFunc that cuts the texts of an event.
func boundEvent(obj any) (any, error) {
	event, ok := obj.(*corev1.Event)
	if !ok {
		return obj, nil
	}
	bounded := *event
	bounded.Message, bounded.Reason = distrust.Text(event.Message), distrust.Cut(distrust.Text(event.Reason), 128)
	return &bounded, nil
}

// trimRemotePod is trimPod for pods of the remote cluster. Their status is written into the pods of this one.
func trimRemotePod(obj any) (any, error) {
	trimmed, err := trimPod(obj) // A copy, if it is a pod.
	if pod, ok := trimmed.(*corev1.Pod); ok && pod.Status.Size() > maxStatusText {
		pod.Status = bounded(&pod.Status)
	}
	return trimmed, err
}

// bounded returns a status with texts and lists of a bounded length; the one it is given stays as it is. Of a status that
// is too large nevertheless there remains what the pod's owner and its services need.
func bounded(status *corev1.PodStatus) corev1.PodStatus {
	out := *status.DeepCopy()
	out.Message, out.Reason = distrust.Cut(out.Message, maxStatusText), distrust.Cut(out.Reason, maxStatusText)
	out.Conditions = out.Conditions[:min(len(out.Conditions), maxConditions)]
	for i := range out.Conditions {
		c := &out.Conditions[i]
		c.Message, c.Reason = distrust.Cut(c.Message, maxStatusText), distrust.Cut(c.Reason, maxStatusText)
	}
	for _, list := range [][]corev1.ContainerStatus{
		out.ContainerStatuses, out.InitContainerStatuses, out.EphemeralContainerStatuses,
	} {
		for i := range list {
			boundState(&list[i].State)
			boundState(&list[i].LastTerminationState)
		}
	}
	if out.Size() <= maxStatus {
		return out
	}
	left := corev1.PodStatus{
		Phase: corev1.PodPhase(distrust.Cut(string(out.Phase), 64)), StartTime: out.StartTime,
		Reason: reasonStatusTooLarge, Message: "the provider cluster reports more than is shown here",
	}
	if _, err := netip.ParseAddr(out.PodIP); err == nil {
		left.PodIP, left.PodIPs = out.PodIP, []corev1.PodIP{{IP: out.PodIP}}
	}
	if i := slices.IndexFunc(out.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }); i >= 0 {
		ready := out.Conditions[i]
		left.Conditions = []corev1.PodCondition{{
			Type: ready.Type, Status: corev1.ConditionStatus(distrust.Cut(string(ready.Status), 64)), Reason: reasonStatusTooLarge,
			LastTransitionTime: ready.LastTransitionTime,
		}}
	}
	return left
}

func boundState(state *corev1.ContainerState) {
	if w := state.Waiting; w != nil {
		w.Message, w.Reason = distrust.Cut(w.Message, maxStatusText), distrust.Cut(w.Reason, maxStatusText)
	}
	if t := state.Terminated; t != nil {
		t.Message, t.Reason = distrust.Cut(t.Message, maxStatusText), distrust.Cut(t.Reason, maxStatusText)
	}
}
