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

// The trimming functions below are idempotent: client-go calls each twice for the objects of a first list that is a
// watch (WatchListClient; Reflector.watchList and RealFIFO.Replace in tools/cache).

// Trimmed returns a reflector of pods with trimmed caches and a bounded status of its remote pods. It is ready when the
// caches are filled.
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

// TrimToPlace keeps only the identity and the place of each pod in the cache of a namespace's pods. The reflectors of
// events and of EndpointSlices share that cache and need no more. The virtual kubelet of every provider caches all pods
// of the namespace.
func TrimToPlace(pods cache.SharedIndexInformer) { Must(pods.SetTransform(trimToPlace)) }

// PlaceAnnotations are the annotations of pods that TrimToPlace keeps: the reflector of EndpointSlices shows the
// endpoint of a pod with them.
func PlaceAnnotations() []string {
	return []string{v1alpha1.InnerIPAnnotation, v1alpha1.RootIPAnnotation, v1alpha1.RootClusterAnnotation}
}

// Must panics on a programming error: an informer rejects a transform only after its start, and Liqo's manager starts
// informers after all their reflectors were made.
func Must(err error) {
	if err != nil {
		panic(fmt.Errorf("an informer was started before its reflectors: %w", err))
	}
}

// trimPod is a cache.TransformFunc that keeps a pod's managed fields, a third of its size, out of the cache. If an
// object is written without them, the API server leaves them unchanged.
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

// identity returns an object's identifying metadata and its labels.
func identity(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Labels: o.GetLabels(),
	}
}

// trimShadowPod is trimPod for a ShadowPod. It also hides the label with which the provider's webhook records the
// creator (pkg/webhooks/shadowpod). Liqo's pod reflector removes every label that the pod itself does not have: it
// would update the ShadowPod, the webhook would put the label back, and so on each time the pod is reconciled, with the
// resulting conflicts. The annotations with the UID of the pod and with its constraints are hidden for the same reason.
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
	if _, sent := trimmed.Annotations[v1alpha1.ConstraintsAnnotation]; sent {
		trimmed.Annotations = maps.Clone(trimmed.Annotations)
		delete(trimmed.Annotations, v1alpha1.ConstraintsAnnotation)
	}
	return &trimmed, nil
}

// hiddenUID is the prefix of a pod's UID in the field that hides the UID. No object is created with such a
// GenerateName.
const hiddenUID = "pod-uid:"

// HidePodUID stores the UID that PodUID returns.
func HidePodUID(shadow *offloadingv1beta1.ShadowPod, uid types.UID) {
	shadow.GenerateName = hiddenUID + string(uid)
}

// PodUID returns the UID of the pod that a trimmed ShadowPod was made from; "" if it is not recorded. The UID is kept
// in a field that no ShadowPod of a virtual kubelet uses, so a ShadowPod that Liqo builds must pass through WithPodUID
// before it is sent.
func PodUID(shadow *offloadingv1beta1.ShadowPod) types.UID {
	uid, hidden := strings.CutPrefix(shadow.GenerateName, hiddenUID)
	if !hidden {
		return ""
	}
	return types.UID(uid)
}

// WithPodUID returns the ShadowPod to send to the provider cluster: with the UID, if the annotations of the pod leave
// space for it.
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
