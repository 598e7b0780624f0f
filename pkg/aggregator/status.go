package aggregator

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"

	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator/share"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// The reasons of the condition Resources, and of the events.
const (
	reasonGranted = "Granted"
	reasonReduced = "GrantedInPart"
	reasonDenied  = "InsufficientResources"
)

// mode is how the decision treats a slice.
type mode int

const (
	// ignored: it is neither counted nor written.
	ignored mode = iota
	// frozen: its grant is counted and may shrink, but does not grow.
	frozen
	// active: it is decided.
	active
)

// modeOf follows Liqo's own controllers. A slice needs a certificate first. A cordoned tenant keeps its grants. Liqo
// denies all slices of a drained tenant (handleResourcesStatus).
func modeOf(slice *authv1beta1.ResourceSlice, tenant *authv1beta1.Tenant) mode {
	if tenant == nil || tenant.Spec.TenantCondition == authv1beta1.TenantConditionDrained {
		return ignored
	}
	authenticated := placement.IsAccepted(slice, authv1beta1.ResourceSliceConditionTypeAuthentication)
	cordoned := tenant.Spec.TenantCondition == authv1beta1.TenantConditionCordoned
	switch {
	case authenticated && !cordoned && slice.DeletionTimestamp == nil:
		return active
	case placement.IsAccepted(slice, authv1beta1.ResourceSliceConditionTypeResources):
		return frozen
	}
	return ignored
}

// sliceOf returns the input of the decision for a ResourceSlice. requested is its request at the last decision, nil if
// it is unknown.
func sliceOf(slice *authv1beta1.ResourceSlice, f mode, requested resources.Amounts, now time.Time,
	interval time.Duration,
) share.Slice {
	s := share.Slice{
		Name: nameOf(slice), Consumer: placement.ConsumerOfSlice(slice), Created: slice.CreationTimestamp.Time,
		Requested: resources.RoundDown(slice.Spec.Resources), Frozen: f == frozen,
	}
	if placement.IsAccepted(slice, authv1beta1.ResourceSliceConditionTypeResources) {
		s.Granted = resources.RoundDown(slice.Status.Resources)
		changedRequest := requested != nil && !equality.Semantic.DeepEqual(requested, s.Requested)
		s.CoolingDown = !changedRequest && cooldownOf(slice, now, interval) > 0
	}
	return s
}

// cooldownOf returns the time until a grant may grow again. A grant time more than an interval in the future comes from
// a clock that was set back since, or from another leader's clock: the broker does not wait for it.
func cooldownOf(slice *authv1beta1.ResourceSlice, now time.Time, interval time.Duration) time.Duration {
	condition := authentication.GetCondition(slice, authv1beta1.ResourceSliceConditionTypeResources)
	left := condition.LastTransitionTime.Add(interval).Sub(now)
	if left > 2*interval {
		return 0
	}
	return max(0, left)
}

// classes are part of every offer.
type classes struct {
	ingress      []liqov1beta1.IngressType
	loadBalancer []liqov1beta1.LoadBalancerType
	storage      []liqov1beta1.StorageType
}

// write puts an offer into the status of a slice, and reports whether the offer itself changed. Everything else in the
// status is Liqo's. The transition time is the time when the amounts changed, not the message, because the cooldown
// begins then.
func write(slice *authv1beta1.ResourceSlice, offer share.Offer, labels map[string]string, c classes, now time.Time) bool {
	status := &slice.Status
	verdict, reason, message := authv1beta1.ResourceSliceConditionAccepted, reasonGranted, "granted "+share.Text(offer.Granted)
	resources := offer.Granted.List()
	switch {
	case offer.Granted == nil:
		verdict, reason, message, resources = authv1beta1.ResourceSliceConditionDenied, reasonDenied, offer.Reason, nil
	case offer.Reason != "":
		reason, message = reasonReduced, offer.Reason
	}
	before := authentication.GetCondition(slice, authv1beta1.ResourceSliceConditionTypeResources)
	changed := before == nil || before.Status != verdict || !equality.Semantic.DeepEqual(status.Resources, resources)
	at := metav1.NewTime(now)
	if !changed {
		at = before.LastTransitionTime
		resources = status.Resources
	}
	status.Resources = resources
	if verdict == authv1beta1.ResourceSliceConditionAccepted {
		status.NodeLabels = labels
		status.IngressClasses, status.LoadBalancerClasses, status.StorageClasses = c.ingress, c.loadBalancer, c.storage
	}
	authentication.EnsureCondition(slice, authv1beta1.ResourceSliceConditionTypeResources, verdict, reason, message)
	authentication.GetCondition(slice, authv1beta1.ResourceSliceConditionTypeResources).LastTransitionTime = at
	return changed
}
