package podspec

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
)

// Completed returns Liqo's pod reflector of a namespace with a client that completes the ShadowPods that Liqo makes,
// and records on each the UID of its local pod. If the next cluster may be a broker's (toBroker), it also sends the
// constraints that Liqo does not forward.
func Completed(toBroker bool, local func(namespace string) corev1listers.PodNamespaceLister, next generic.NamespacedReflectorFactoryFunc,
) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		completing := *opts
		completing.RemoteLiqoClient = client{opts.RemoteLiqoClient, local(opts.LocalNamespace), toBroker}
		return next(&completing)
	}
}

// client is a client of Liqo's kinds. The types below are the path to the ShadowPods.
type client struct {
	liqoclient.Interface
	pods     corev1listers.PodNamespaceLister
	toBroker bool
}

func (c client) OffloadingV1beta1() offloadingclient.OffloadingV1beta1Interface {
	return group{c.Interface.OffloadingV1beta1(), c.pods, c.toBroker}
}

type group struct {
	offloadingclient.OffloadingV1beta1Interface
	pods     corev1listers.PodNamespaceLister
	toBroker bool
}

func (g group) ShadowPods(namespace string) offloadingclient.ShadowPodInterface {
	return shadowPods{g.OffloadingV1beta1Interface.ShadowPods(namespace), g.pods, g.toBroker}
}

type shadowPods struct {
	offloadingclient.ShadowPodInterface
	pods     corev1listers.PodNamespaceLister
	toBroker bool
}

func (s shadowPods) Create(ctx context.Context, shadow *offloadingv1beta1.ShadowPod, opts metav1.CreateOptions,
) (*offloadingv1beta1.ShadowPod, error) {
	pod, err := s.pods.Get(shadow.Name)
	if err != nil {
		return nil, err // The pod was deleted.
	}
	complete := transform.WithPodUID(shadow, pod.UID)
	complete.Spec = *shadow.Spec.DeepCopy()
	Complete(&complete.Spec.Pod, &pod.Spec)
	useClaims(&complete.Spec.Pod, pod)
	s.sendConstraints(complete, pod)
	return s.ShadowPodInterface.Create(ctx, complete, opts)
}

// sendConstraints sets the pod's constraints on a ShadowPod that is not the cache's own.
func (s shadowPods) sendConstraints(shadow *offloadingv1beta1.ShadowPod, pod *corev1.Pod) {
	if text := constraints.Annotation(pod); s.toBroker && text != "" {
		metav1.SetMetaDataAnnotation(&shadow.ObjectMeta, v1alpha1.ConstraintsAnnotation, text)
	}
}

// Update implements offloadingclient.ShadowPodInterface. A ShadowPod that Liqo builds lacks the UID of its pod, and the
// constraints that were sent.
func (s shadowPods) Update(ctx context.Context, shadow *offloadingv1beta1.ShadowPod, opts metav1.UpdateOptions,
) (*offloadingv1beta1.ShadowPod, error) {
	if uid := transform.PodUID(shadow); uid != "" {
		shadow = transform.WithPodUID(shadow, uid)
		if pod, err := s.pods.Get(shadow.Name); err == nil && pod.UID == uid {
			s.sendConstraints(shadow, pod)
		}
	}
	return s.ShadowPodInterface.Update(ctx, shadow, opts)
}
