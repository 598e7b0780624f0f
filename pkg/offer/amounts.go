package offer

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amounts are by resource name: cpu in millicores, everything else in units (bytes, a count); never negative.
type Amounts map[corev1.ResourceName]int64

// largest bounds one amount, such that a sum of a thousand does not overflow, and a float64 holds it exactly.
const largest = 1 << 53

// fromList converts amounts as the Kubernetes API writes them; fractions are dropped.
func fromList(list corev1.ResourceList) Amounts {
	a := make(Amounts, len(list))
	for name, quantity := range list {
		q := quantity.DeepCopy()
		if name == corev1.ResourceCPU && q.Value() <= largest {
			q = *resource.NewQuantity(q.MilliValue(), resource.DecimalSI)
		}
		whole := q.Value() // Rounded up.
		if q.CmpInt64(whole) < 0 {
			whole--
		}
		a[name] = min(max(whole, 0), largest)
	}
	return a
}

// list converts back.
func (a Amounts) list() corev1.ResourceList {
	list := make(corev1.ResourceList, len(a))
	for name, amount := range a {
		list[name] = quantityOf(name, amount)
	}
	return list
}

func quantityOf(name corev1.ResourceName, amount int64) resource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage:
		return *resource.NewQuantity(amount, resource.BinarySI)
	}
	return *resource.NewQuantity(amount, resource.DecimalSI)
}

// shown is an amount for people.
func shown(name corev1.ResourceName, amount int64) string {
	q := quantityOf(name, amount)
	return q.String()
}

// add adds other to a.
func (a Amounts) add(other Amounts) {
	for name, amount := range other {
		a[name] = min(a[name]+amount, largest)
	}
}

// take takes other, which a has, from it.
func (a Amounts) take(other Amounts) {
	for name, amount := range other {
		a[name] -= amount
	}
}

// times multiplies by a factor; fractions are dropped.
func (a Amounts) times(factor float64) Amounts {
	product := make(Amounts, len(a))
	for name, amount := range a {
		product[name] = int64(min(float64(amount)*factor, largest))
	}
	return product
}

// names are sorted, those that people look at first in front.
func (a Amounts) names() []corev1.ResourceName {
	names := slices.Sorted(maps.Keys(a))
	ordered := make([]corev1.ResourceName, 0, len(names))
	for _, name := range filled() {
		if _, has := a[name]; has {
			ordered = append(ordered, name)
		}
	}
	for _, name := range names {
		if !slices.Contains(ordered, name) {
			ordered = append(ordered, name)
		}
	}
	return ordered
}

// String lists the amounts, for people.
func (a Amounts) String() string {
	text := ""
	for _, name := range a.names() {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %s", shown(name, a[name]), name)
	}
	return text
}
