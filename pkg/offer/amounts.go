package offer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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

// minus is what a has more of than other.
func (a Amounts) minus(other Amounts) Amounts {
	more := Amounts{}
	for name, amount := range a {
		if amount > other[name] {
			more[name] = amount - other[name]
		}
	}
	return more
}

// covers says whether other is there in a.
func (a Amounts) covers(other Amounts) bool {
	for name, amount := range other {
		if amount > a[name] {
			return false
		}
	}
	return true
}

// add adds other to a.
func (a Amounts) add(other Amounts) {
	for name, amount := range other {
		a[name] = min(a[name]+amount, largest)
	}
}

// plus is a and other together.
func (a Amounts) plus(other Amounts) Amounts {
	sum := make(Amounts, len(a)+len(other))
	sum.add(a)
	sum.add(other)
	return sum
}

// atMost is a, with no more of anything than other has.
func (a Amounts) atMost(other Amounts) Amounts {
	least := make(Amounts, len(a))
	for name, amount := range a {
		least[name] = min(amount, other[name])
	}
	return least
}

// take takes other from a.
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
	first := filled()
	ordered := make([]corev1.ResourceName, 0, len(a))
	for _, name := range first {
		if _, has := a[name]; has {
			ordered = append(ordered, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !slices.Contains(first, name) {
			ordered = append(ordered, name)
		}
	}
	return ordered
}

// String lists the amounts, for people.
func (a Amounts) String() string {
	texts := make([]string, 0, len(a))
	for _, name := range a.names() {
		texts = append(texts, shown(name, a[name])+" "+shortened(name))
	}
	return listed(texts, ", ")
}

// What is said of resources is said of so many of them at most, with so many bytes of the name of each: consumers name
// them, and the text has to fit into a ResourceSlice.
const (
	mostListed  = 10
	longestName = 100
)

// listed joins what there is to say of each of several resources.
func listed(texts []string, separator string) string {
	if more := len(texts) - mostListed; more > 0 {
		texts = append(texts[:mostListed:mostListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, separator)
}

func shortened(name corev1.ResourceName) string {
	if len(name) <= longestName {
		return string(name)
	}
	return strings.ToValidUTF8(string(name[:longestName]), "") + "…"
}
