package transform

import (
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// boundEvent is a cache.TransformFunc. An event on a ShadowPod is shown on the pod of its name, where it is read: it has the reason why
// the remote cluster made no pod.
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

// trimLocalEvent is a cache.TransformFunc that keeps of an event which one it is, with its labels, and how often it happened. Liqo's
// reflector asks of an event in this cluster whether it is there, whether it is a reflected one, and for the UID that it deletes it by
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

// TrimRemotePod is a cache.TransformFunc, trimPod for pods of the remote cluster. Their status is written into the pods of this one. Of their spec it keeps
// whether they use their node's network, for pkg/provider/podip; Liqo's reflector reads metadata and status
// (pkg/virtualKubelet/reflection/workload).
func TrimRemotePod(obj any) (any, error) {
	trimmed, err := trimPod(obj) // A copy, if it is a pod.
	if pod, ok := trimmed.(*corev1.Pod); ok {
		pod.Spec = corev1.PodSpec{HostNetwork: pod.Spec.HostNetwork}
		pod.Status = *untrusted.PodStatus(&pod.Status)
	}
	return trimmed, err
}
