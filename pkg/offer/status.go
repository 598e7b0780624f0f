package offer

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
)

// The reasons of the condition Resources, and of the events.
const (
	reasonGranted = "Granted"
	reasonReduced = "GrantedInPart"
	reasonDenied  = "InsufficientResources"
)

// fate is what may be done about a slice.
type fate int

const (
	// ignored: neither counted nor written.
	ignored fate = iota
	// closed: what it has is counted, and reduced if it must be.
	closed
	// open: to be decided.
	open
)

// fateOf goes by Liqo's own controllers: certificates come first, a cordoned tenant keeps what it has, and a drained one
// is denied whatever the class (handleResourcesStatus).
func fateOf(slice *authv1beta1.ResourceSlice, tenant *authv1beta1.Tenant) fate {
	if tenant == nil || tenant.Spec.TenantCondition == authv1beta1.TenantConditionDrained {
		return ignored
	}
	authenticated := isAccepted(slice, authv1beta1.ResourceSliceConditionTypeAuthentication)
	cordoned := tenant.Spec.TenantCondition == authv1beta1.TenantConditionCordoned
	switch {
	case authenticated && !cordoned && slice.DeletionTimestamp == nil:
		return open
	case isAccepted(slice, authv1beta1.ResourceSliceConditionTypeResources):
		return closed
	}
	return ignored
}

func isAccepted(slice *authv1beta1.ResourceSlice, kind authv1beta1.ResourceSliceConditionType) bool {
	condition := authentication.GetCondition(slice, kind)
	return condition != nil && condition.Status == authv1beta1.ResourceSliceConditionAccepted
}

// sliceOf is a ResourceSlice as the decision sees it; asked is what it asked for when it was last decided, nil if that
// is not known.
func sliceOf(slice *authv1beta1.ResourceSlice, f fate, asked Amounts, now time.Time, interval time.Duration) Slice {
	s := Slice{
		Name: nameOf(slice), Consumer: consumerOf(slice), Created: slice.CreationTimestamp.Time,
		Asked: fromList(slice.Spec.Resources), Closed: f == closed,
	}
	if isAccepted(slice, authv1beta1.ResourceSliceConditionTypeResources) {
		s.Granted = fromList(slice.Status.Resources)
		asksAnew := asked != nil && !equality.Semantic.DeepEqual(asked, s.Asked)
		s.Resting = !asksAnew && restOf(slice, now, interval) > 0
	}
	return s
}

// restOf is how long a grant rests before it may grow again.
func restOf(slice *authv1beta1.ResourceSlice, now time.Time, interval time.Duration) time.Duration {
	condition := authentication.GetCondition(slice, authv1beta1.ResourceSliceConditionTypeResources)
	return max(0, condition.LastTransitionTime.Add(interval).Sub(now))
}

// classes are what consumers are told besides amounts.
type classes struct {
	ingress      []liqov1beta1.IngressType
	loadBalancer []liqov1beta1.LoadBalancerType
}

// write puts an offer into the status of a slice, and says whether the offer itself is another one. Everything else in
// the status is Liqo's. The transition time is that of the offer, not of its wording: growth waits by it.
func write(slice *authv1beta1.ResourceSlice, offer Offer, labels map[string]string, c classes, now time.Time) bool {
	status := &slice.Status
	verdict, reason, message := authv1beta1.ResourceSliceConditionAccepted, reasonGranted, "granted "+offer.Granted.String()
	resources := offer.Granted.list()
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
		status.IngressClasses, status.LoadBalancerClasses = c.ingress, c.loadBalancer
		// Behind the broker's node there are no volumes of Liqo's class, so no storage is offered.
		status.StorageClasses = nil
	}
	authentication.EnsureCondition(slice, authv1beta1.ResourceSliceConditionTypeResources, verdict, reason, message)
	authentication.GetCondition(slice, authv1beta1.ResourceSliceConditionTypeResources).LastTransitionTime = at
	return changed
}
