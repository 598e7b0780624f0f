// Package resources counts amounts of Kubernetes resources as whole numbers: requests of pods, grants of providers,
// offers to consumers. It is pure.
package resources

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Amounts are amounts by resource name: cpu in millicores, everything else in units (bytes, a count). The number of
// pods is a resource too. Sums and products are bounded by the range of int64; they never overflow.
type Amounts map[corev1.ResourceName]int64

// RoundUp converts requests. Fractions round up, as in kube-scheduler; negative amounts become 0.
func RoundUp(list corev1.ResourceList) Amounts {
	a := make(Amounts, len(list)+1) // PodRequests adds one.
	for name, quantity := range list {
		a[name], _ = amountOf(name, &quantity)
	}
	return a
}

// RoundDown converts grants and offers. Fractions are dropped; negative amounts become 0.
func RoundDown(list corev1.ResourceList) Amounts {
	a := make(Amounts, len(list))
	for name, quantity := range list {
		amount, exact := amountOf(name, &quantity)
		if !exact {
			amount--
		}
		a[name] = amount
	}
	return a
}

// amountOf returns a quantity rounded up, at least 0. It returns false if a fraction was added.
func amountOf(name corev1.ResourceName, quantity *resource.Quantity) (int64, bool) {
	scale, largest := resource.Scale(0), int64(math.MaxInt64)
	if name == corev1.ResourceCPU {
		scale, largest = resource.Milli, math.MaxInt64/1000
	}
	switch {
	case quantity.Sign() <= 0:
		return 0, true
	case quantity.CmpInt64(largest) >= 0: // ScaledValue would overflow.
		return math.MaxInt64, true
	}
	amount := quantity.ScaledValue(scale)
	return amount, quantity.Cmp(*resource.NewScaledQuantity(amount, scale)) == 0
}

// PodRequests returns the requests of a pod as kube-scheduler counts them (KEP-753 sidecars, KEP-2837 pod-level
// resources): its containers and sidecars together or its largest init container, whichever is more, or the pod-level
// requests; its overhead; and one of "pods".
func PodRequests(spec *corev1.PodSpec) Amounts {
	requests := RoundUp(resourcehelper.PodRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{}))
	requests[corev1.ResourcePods] = 1
	return requests
}

// Quantity returns one amount in the form of the Kubernetes API.
func Quantity(name corev1.ResourceName, amount int64) resource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage:
		return *resource.NewQuantity(amount, resource.BinarySI)
	}
	return *resource.NewQuantity(amount, resource.DecimalSI)
}

// List returns all amounts in the form of the Kubernetes API.
func (a Amounts) List() corev1.ResourceList {
	list := make(corev1.ResourceList, len(a))
	for name, amount := range a {
		list[name] = Quantity(name, amount)
	}
	return list
}

// Add adds other to a. Negative amounts of other count as 0.
func (a Amounts) Add(other Amounts) {
	for name, amount := range other {
		a[name] = Sum(a[name], amount)
	}
}

// Sum adds an amount to a total. A negative amount counts as 0.
func Sum(total, amount int64) int64 {
	amount = max(amount, 0)
	return min(total, math.MaxInt64-amount) + amount
}

// Sub subtracts other from a, which may become negative. Negative amounts of other count as 0.
func (a Amounts) Sub(other Amounts) {
	for name, amount := range other {
		amount = max(amount, 0)
		a[name] = max(a[name], math.MinInt64+amount) - amount
	}
}

// Excess returns the resources of which a has more than other, with the difference.
func (a Amounts) Excess(other Amounts) Amounts {
	excess := Amounts{}
	for name, amount := range a {
		if amount > other[name] {
			excess[name] = amount - other[name]
		}
	}
	return excess
}

// Covers reports whether a has at least as much of everything as other.
func (a Amounts) Covers(other Amounts) bool {
	for name, amount := range other {
		if amount > a[name] {
			return false
		}
	}
	return true
}

// Min returns the resources of a, with the smaller amount of a and other.
func (a Amounts) Min(other Amounts) Amounts {
	least := make(Amounts, len(a))
	for name, amount := range a {
		least[name] = min(amount, other[name])
	}
	return least
}

// Max returns the resources of both, with the larger amount.
func (a Amounts) Max(other Amounts) Amounts {
	most := make(Amounts, max(len(a), len(other)))
	for name, amount := range a {
		most[name] = max(amount, other[name])
	}
	for name, amount := range other {
		most[name] = max(amount, a[name])
	}
	return most
}

// Scale returns a multiplied by a factor that is not negative. Fractions are dropped.
func (a Amounts) Scale(factor float64) Amounts {
	product := make(Amounts, len(a))
	for name, amount := range a {
		if scaled := float64(amount) * factor; scaled < math.MaxInt64 {
			product[name] = int64(scaled)
		} else {
			product[name] = math.MaxInt64
		}
	}
	return product
}
