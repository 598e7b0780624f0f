package lens

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
)

// BoundedEvents returns a reflector of events whose texts are bounded and can be shown.
func BoundedEvents(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		Must(opts.RemoteFactory.Core().V1().Events().Informer().SetTransform(boundEvent))
		return next(opts)
	}
}

// boundEvent is a cache.TransformFunc.
func boundEvent(obj any) (any, error) {
	event, ok := obj.(*corev1.Event)
	if !ok {
		return obj, nil
	}
	return distrust.Event(event), nil
}

// trimRemotePod is trimPod for pods of the remote cluster. Their status is written into the pods of this one.
func trimRemotePod(obj any) (any, error) {
	trimmed, err := trimPod(obj) // A copy, if it is a pod.
	if pod, ok := trimmed.(*corev1.Pod); ok {
		pod.Status = *distrust.PodStatus(&pod.Status)
	}
	return trimmed, err
}
