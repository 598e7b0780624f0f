package providers

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// deniedSlices returns the ResourceSlices that a provider denied, by name. Liqo makes no VirtualNode of them.
func (c *Controller) deniedSlices(ctx context.Context, id string) ([]*authv1beta1.ResourceSlice, error) {
	asked, err := peering.ResourceSlices(ctx, c.Client, id)
	return slices.DeleteFunc(asked, func(slice *authv1beta1.ResourceSlice) bool { return denialOf(slice) == nil }), err
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

// setSlicesGranted sets the condition SlicesGranted while the provider denies slices, with the reason of the first of
// them, such as DefaultResourceSliceClassDisabled.
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

// conditionReason matches the reasons of conditions that Kubernetes accepts.
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
	return untrusted.Text(text)
}
