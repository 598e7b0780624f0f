package placement

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
	"github.com/liqotech/liqo/pkg/utils/resource"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// ShadowOf returns the UID of the ShadowPod that Liqo made a pod of; "" if it was not made so.
func ShadowOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "ShadowPod" {
		return owner.UID
	}
	return ""
}

// AccountOf returns in which account a pod counts: that of the user who created its ShadowPod, as Liqo's webhook labels it. It is zero for
// pods that Liqo did not make of ShadowPods, and in namespaces of no consumer: there any user may set such labels.
func AccountOf(pod *corev1.Pod, namespace *corev1.Namespace) scheduler.Account {
	consumer := ConsumerOf(namespace)
	if consumer == "" || ShadowOf(pod) == "" {
		return scheduler.Account{}
	}
	return scheduler.Account{Consumer: consumer, Creator: pod.Labels[consts.CreatorLabelKey]}
}

// AccountOfSlice returns the user of a ResourceSlice: the common name of its certificate, as Liqo's webhook writes it into a label of the
// ShadowPods (pkg/webhooks/shadowpod), which their pods have, too. Liqo's quota of the slice counts the pods of that label. It is zero for a
// slice that names no consumer.
func AccountOfSlice(slice *authv1beta1.ResourceSlice) scheduler.Account {
	consumer := string(ptr.Deref(slice.Spec.ConsumerClusterID, ""))
	if consumer == "" {
		return scheduler.Account{}
	}
	return scheduler.Account{Consumer: consumer, Creator: resource.EscapeLabel(authentication.CommonNameResourceSliceCSR(slice))}
}
