package providers

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
)

// askedOf returns the provider that this cluster asks for resources by a ResourceSlice; "" for a slice of a consumer, which Liqo
// has replicated here.
func askedOf(slice *authv1beta1.ResourceSlice) string {
	if slice.Labels[consts.ReplicationOriginLabel] != "" {
		return ""
	}
	return string(ptr.Deref(slice.Spec.ProviderClusterID, ""))
}

// deniedSlices returns the ResourceSlices that a provider denied, by name. Liqo makes no VirtualNode of them. Those outside of the
// provider's own tenant namespace do not count: a consumer may write ResourceSlices in its own.
func (c *Controller) deniedSlices(ctx context.Context, id string) ([]*authv1beta1.ResourceSlice, error) {
	var list authv1beta1.ResourceSliceList
	if err := c.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var denied []*authv1beta1.ResourceSlice
	for i := range list.Items {
		if slice := &list.Items[i]; askedOf(slice) == id && denialOf(slice) != nil {
			denied = append(denied, slice)
		}
	}
	return inTenantOf(ctx, c.Client, id, denied)
}

// denialOf returns the condition by which a provider denied a slice, or its credentials; nil if it did not.
func denialOf(slice *authv1beta1.ResourceSlice) *authv1beta1.ResourceSliceCondition {
	i := slices.IndexFunc(slice.Status.Conditions, func(c authv1beta1.ResourceSliceCondition) bool {
		return c.Status == authv1beta1.ResourceSliceConditionDenied
	})
	if i < 0 {
		return nil
	}
	return &slice.Status.Conditions[i]
}

// setSlicesGranted sets the condition SlicesGranted while the provider denies slices, with the reason of the first of them, such as
// DefaultResourceSliceClassDisabled.
func setSlicesGranted(status *v1alpha1.ProviderClusterStatus, generation int64, denied []*authv1beta1.ResourceSlice) {
	if len(denied) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ProviderSlicesGranted)
		return
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.ProviderSlicesGranted, Status: metav1.ConditionFalse, Reason: reasonOfDenial(denied[0]),
		Message: denials(denied), ObservedGeneration: generation,
	})
}

// conditionReason is what Kubernetes accepts as the reason of a condition.
var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$`)

func reasonOfDenial(slice *authv1beta1.ResourceSlice) string {
	if reason := denialOf(slice).Reason; conditionReason.MatchString(reason) {
		return reason
	}
	return v1alpha1.ReasonDenied
}

// denials describes the first denied slice by the words of the provider, and counts the others.
func denials(denied []*authv1beta1.ResourceSlice) string {
	first := denied[0]
	text := fmt.Sprintf("ResourceSlice %s of class %s is denied", first.Name, first.Spec.Class)
	if more := len(denied) - 1; more > 0 {
		text = fmt.Sprintf("ResourceSlice %s of class %s and %d more are denied", first.Name, first.Spec.Class, more)
	}
	if message := denialOf(first).Message; message != "" {
		text += ": " + message
	}
	return distrust.Text(text)
}
