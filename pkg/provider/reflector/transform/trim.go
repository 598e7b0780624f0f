package transform

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// The functions below that trim what a cache keeps are idempotent: client-go calls each twice for the objects of a first list that is
// a watch (WatchListClient; Reflector.watchList and RealFIFO.Replace in tools/cache).

// Trimmed returns a reflector of pods whose caches are trimmed, whose remote pods have a bounded status, and that is ready
// when they are filled.
func Trimmed(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		pods := opts.RemoteFactory.Core().V1().Pods().Informer()
		secrets := opts.RemoteFactory.Core().V1().Secrets().Informer()
		shadows := opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Informer()
		Must(pods.SetTransform(TrimRemotePod))
		Must(shadows.SetTransform(trimShadowPod))
		seen := *opts
		seen.Ready = func() bool { return pods.HasSynced() && secrets.HasSynced() && shadows.HasSynced() }
		return next(&seen)
	}
}

// TrimPods keeps the managed fields of pods out of an informer's cache.
func TrimPods(pods cache.SharedIndexInformer) { Must(pods.SetTransform(trimPod)) }

// TrimToPlace keeps in the cache of a namespace's pods which pod each is and where. The reflectors of events and of EndpointSlices
// share that cache, and ask for no more; every provider's virtual kubelet has all pods of the namespace in it.
func TrimToPlace(pods cache.SharedIndexInformer) { Must(pods.SetTransform(trimToPlace)) }

// PlaceAnnotations are the annotations of pods that TrimToPlace keeps: those by which the endpoint of a pod is shown.
func PlaceAnnotations() []string {
	return []string{v1alpha1.InnerIPAnnotation, v1alpha1.RootIPAnnotation, v1alpha1.RootClusterAnnotation}
}

// Must stops a mistake in the program: an informer refuses only what comes after its start, and Liqo's manager starts
// informers after all their reflectors were made.
func Must(err error) {
	if err != nil {
		panic(fmt.Errorf("an informer was started before its reflectors: %w", err))
	}
}

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

// trimToPlace is a cache.TransformFunc.
func trimToPlace(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Pod{ObjectMeta: identity(pod), Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName}}
	for _, key := range PlaceAnnotations() {
		if value, ok := pod.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, key, value)
		}
	}
	return trimmed, nil
}

// identity is which object it is, and its labels.
func identity(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Labels: o.GetLabels(),
	}
}

// trimShadowPod is trimPod for a ShadowPod, and hides the label by which the provider's webhook notes who made it
// (pkg/webhooks/shadowpod). Liqo's pod reflector takes every label that is not the pod's own for one to remove: it
// would update the ShadowPod, the webhook would put the label back, and so on each time the pod is reconciled, with the
// conflicts that follow. The annotation with the UID of the pod is hidden for the same reason.
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
	if uid := shadow.Annotations[v1alpha1.PodUIDAnnotation]; uid != "" {
		HidePodUID(&trimmed, types.UID(uid))
		trimmed.Annotations = maps.Clone(shadow.Annotations)
		delete(trimmed.Annotations, v1alpha1.PodUIDAnnotation)
	}
	return &trimmed, nil
}

// hiddenUID precedes the UID of a pod in the field that hides it. No object is created with such a GenerateName.
const hiddenUID = "pod-uid:"

// HidePodUID sets what PodUID returns.
func HidePodUID(shadow *offloadingv1beta1.ShadowPod, uid types.UID) {
	shadow.GenerateName = hiddenUID + string(uid)
}

// PodUID returns the UID of the pod that a trimmed ShadowPod was made of; "" if it does not say. It is kept in a field that
// no ShadowPod of a virtual kubelet has: what Liqo makes of a ShadowPod must pass WithPodUID.
func PodUID(shadow *offloadingv1beta1.ShadowPod) types.UID {
	uid, hidden := strings.CutPrefix(shadow.GenerateName, hiddenUID)
	if !hidden {
		return ""
	}
	return types.UID(uid)
}

// WithPodUID returns a ShadowPod as it is sent to the provider cluster: with the UID, if the annotations of the pod leave space for it.
func WithPodUID(shadow *offloadingv1beta1.ShadowPod, uid types.UID) *offloadingv1beta1.ShadowPod {
	sent := *shadow
	sent.GenerateName = ""
	sent.Annotations = maps.Clone(shadow.Annotations)
	metav1.SetMetaDataAnnotation(&sent.ObjectMeta, v1alpha1.PodUIDAnnotation, string(uid))
	if apivalidation.ValidateAnnotationsSize(sent.Annotations) != nil {
		delete(sent.Annotations, v1alpha1.PodUIDAnnotation)
	}
	return &sent
}
