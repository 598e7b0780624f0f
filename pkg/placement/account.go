package placement

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
	"github.com/liqotech/liqo/pkg/utils/resource"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// ShadowOf returns the UID of the ShadowPod that Liqo made a pod from; "" if there is none.
func ShadowOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "ShadowPod" {
		return owner.UID
	}
	return ""
}

// ShadowPodMetadata returns an object to read the metadata of a ShadowPod into.
func ShadowPodMetadata() *metav1.PartialObjectMetadata {
	shadow := &metav1.PartialObjectMetadata{}
	shadow.SetGroupVersionKind(offloadingv1beta1.SchemeGroupVersion.WithKind("ShadowPod"))
	return shadow
}

// AccountOf returns the account that counts a pod: the account of the user who created its ShadowPod, as Liqo's webhook
// labels it. It is zero for pods that Liqo did not make from ShadowPods, and in namespaces of no consumer: there any
// user may set such labels.
func AccountOf(pod *corev1.Pod, namespace *corev1.Namespace) scheduler.Account {
	consumer := ConsumerOf(namespace)
	if consumer == "" || ShadowOf(pod) == "" {
		return scheduler.Account{}
	}
	return scheduler.Account{Consumer: consumer, Creator: pod.Labels[consts.CreatorLabelKey]}
}

// AccountOfSlice returns the user of a ResourceSlice: the common name of its certificate, as Liqo's webhook writes it
// into a label of the ShadowPods (pkg/webhooks/shadowpod), which their pods have, too. Liqo's quota of the slice counts
// the pods with that label. It is zero for a slice that names no consumer.
func AccountOfSlice(slice *authv1beta1.ResourceSlice) scheduler.Account {
	consumer := ConsumerOfSlice(slice)
	if consumer == "" {
		return scheduler.Account{}
	}
	return scheduler.Account{Consumer: consumer, Creator: resource.EscapeLabel(authentication.CommonNameResourceSliceCSR(slice))}
}

// ConsumerOfSlice returns the id of the cluster that a ResourceSlice names as its consumer; "" if it names none.
func ConsumerOfSlice(slice *authv1beta1.ResourceSlice) string {
	return string(ptr.Deref(slice.Spec.ConsumerClusterID, ""))
}

// IsAccepted reports whether a condition of a ResourceSlice is Accepted. Liqo makes a quota for a slice whose resources
// are (its quotacreator-controller).
func IsAccepted(slice *authv1beta1.ResourceSlice, kind authv1beta1.ResourceSliceConditionType) bool {
	condition := authentication.GetCondition(slice, kind)
	return condition != nil && condition.Status == authv1beta1.ResourceSliceConditionAccepted
}
