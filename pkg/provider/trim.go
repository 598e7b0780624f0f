package provider

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
)

// trimPod is a cache.TransformFunc that keeps a pod's managed fields, a third of its size, out of the cache. An API
// server takes an object that comes back without them as one that leaves them as they are.
func trimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	trimmed := *pod
	trimmed.ManagedFields = nil
	return &trimmed, nil
}

// trimShadowPod does the same for a ShadowPod, and hides the label by which the provider's webhook notes who made it
// (pkg/webhooks/shadowpod). Liqo's pod reflector takes every label that is not the pod's own for one to remove: it
// would update the ShadowPod, the webhook would put the label back, and so on at each look at the pod, with the
// conflicts that follow.
func trimShadowPod(obj any) (any, error) {
	shadow, ok := obj.(*offloadingv1beta1.ShadowPod)
	if !ok {
		return obj, nil
	}
	trimmed := *shadow
	trimmed.ManagedFields = nil
	if _, ok := shadow.Labels[consts.CreatorLabelKey]; ok {
		trimmed.Labels = maps.Clone(shadow.Labels)
		delete(trimmed.Labels, consts.CreatorLabelKey)
	}
	return &trimmed, nil
}
