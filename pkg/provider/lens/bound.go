package lens

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
)

// Events returns a reflector of events whose caches are trimmed, and whose remote texts are bounded and can be shown.
func Events(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		Must(opts.RemoteFactory.Core().V1().Events().Informer().SetTransform(boundEvent))
		Must(opts.LocalFactory.Core().V1().Events().Informer().SetTransform(trimLocalEvent))
		TrimToPlace(opts.LocalFactory.Core().V1().Pods().Informer())
		return next(opts)
	}
}

// boundEvent is a cache.TransformFunc.
func boundEvent(obj any) (any, error) {
	event, ok := obj.(*corev1.Event)
	if !ok {
		return obj, nil
	}
	trimmed := *event
	trimmed.ManagedFields = nil
	return distrust.Event(&trimmed), nil
}

// trimLocalEvent is a cache.TransformFunc that keeps of an event which one it is, with its labels. Liqo's reflector asks of an event
// in this cluster whether it is there, whether it is a reflected one, and for the UID that it deletes it by
// (pkg/virtualKubelet/reflection/event).
func trimLocalEvent(obj any) (any, error) {
	event, ok := obj.(*corev1.Event)
	if !ok {
		return obj, nil
	}
	return &corev1.Event{ObjectMeta: identity(event)}, nil
}

// TrimRemotePod is a cache.TransformFunc, trimPod for pods of the remote cluster. Their status is written into the pods of this one. Of their spec it keeps
// whether they use their node's network, for pkg/provider/addresses; Liqo's reflector reads metadata and status
// (pkg/virtualKubelet/reflection/workload).
func TrimRemotePod(obj any) (any, error) {
	trimmed, err := trimPod(obj) // A copy, if it is a pod.
	if pod, ok := trimmed.(*corev1.Pod); ok {
		pod.Spec = corev1.PodSpec{HostNetwork: pod.Spec.HostNetwork}
		pod.Status = *distrust.PodStatus(&pod.Status)
	}
	return trimmed, err
}
