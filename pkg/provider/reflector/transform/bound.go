package transform

import (
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// boundEvent is a cache.TransformFunc. It shows an event on a ShadowPod on the pod of the same name, where users read
// it: the event has the reason why the remote cluster made no pod.
func boundEvent(obj any) (any, error) {
	event, ok := obj.(*corev1.Event)
	if !ok {
		return obj, nil
	}
	trimmed := *event
	trimmed.ManagedFields = nil
	if trimmed.InvolvedObject.Kind == "ShadowPod" && trimmed.InvolvedObject.APIVersion == offloadingv1beta1.SchemeGroupVersion.String() {
		trimmed.InvolvedObject.Kind, trimmed.InvolvedObject.APIVersion = "Pod", corev1.SchemeGroupVersion.String()
		trimmed.InvolvedObject.FieldPath = ""
	}
	return untrusted.Event(&trimmed), nil
}

// trimLocalEvent is a cache.TransformFunc that keeps only an event's identity, labels and count. Liqo's reflector only
// checks whether an event of this cluster exists and whether it is a reflected one, and reads its UID to delete it
// (pkg/virtualKubelet/reflection/event).
func trimLocalEvent(obj any) (any, error) {
	event, ok := obj.(*corev1.Event)
	if !ok {
		return obj, nil
	}
	return &corev1.Event{
		ObjectMeta: identity(event), Count: event.Count, LastTimestamp: event.LastTimestamp, Series: event.Series,
	}, nil
}

// TrimRemotePod is a cache.TransformFunc: trimPod for pods of the remote cluster. It keeps their status, which is
// written into the pods of this cluster. Of their spec it keeps only whether they use their node's network, for
// pkg/provider/podip. Liqo's reflector reads metadata and status only (pkg/virtualKubelet/reflection/workload).
func TrimRemotePod(obj any) (any, error) {
	trimmed, err := trimPod(obj) // A copy, if it is a pod.
	if pod, ok := trimmed.(*corev1.Pod); ok {
		pod.Spec = corev1.PodSpec{HostNetwork: pod.Spec.HostNetwork}
		pod.Status = *untrusted.PodStatus(&pod.Status)
	}
	return trimmed, err
}
