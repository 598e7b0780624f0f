package brokernode

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// reasonUnreachable is the reason of the condition Ready of a pod whose provider cluster cannot be reached.
const reasonUnreachable = "ProviderUnreachable"

// ShowUnreachable returns the remote pod as not Ready while the local one says that the provider cluster cannot be
// reached (v1alpha1.UnreachableAnnotation); the one in the cache stays as it is. Without it, whatever the broker says of
// the pod would be overwritten by what was last seen of the remote one.
func ShowUnreachable(local, remote *corev1.Pod) *corev1.Pod {
	value, marked := local.Annotations[v1alpha1.UnreachableAnnotation]
	if !marked {
		return remote
	}
	shown := *remote
	shown.Status.Conditions = slices.Clone(remote.Status.Conditions)
	for i := range shown.Status.Conditions {
		condition := &shown.Status.Conditions[i]
		if condition.Type != corev1.PodReady || condition.Status != corev1.ConditionTrue {
			continue
		}
		condition.Status, condition.Reason = corev1.ConditionFalse, reasonUnreachable
		// The time comes from the annotation: one that changes with every look would be written with every look.
		if since, err := time.Parse(time.RFC3339, value); err == nil {
			condition.LastTransitionTime = metav1.NewTime(since.Truncate(time.Second))
		}
	}
	return &shown
}
