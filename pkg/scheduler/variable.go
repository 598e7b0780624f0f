package scheduler

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
)

// The amounts of a provider as expressions see them: each is a values.Amounts.
type (
	grantedView  provider
	assignedView provider
	freeView     provider
)

// Amount returns the amount of a resource in the unit of expressions.
func (v *grantedView) Amount(resource string) (float64, bool) {
	p := (*provider)(v)
	return p.amount(resource, p.grantedOf)
}

// All returns all amounts.
func (v *grantedView) All() map[string]float64 {
	p := (*provider)(v)
	return p.allAmounts(p.grantedOf)
}

// Amount returns the amount of a resource in the unit of expressions.
func (v *assignedView) Amount(resource string) (float64, bool) {
	p := (*provider)(v)
	return p.amount(resource, p.assignedOf)
}

// All returns all amounts.
func (v *assignedView) All() map[string]float64 {
	p := (*provider)(v)
	return p.allAmounts(p.assignedOf)
}

// Amount returns the amount of a resource in the unit of expressions.
func (v *freeView) Amount(resource string) (float64, bool) {
	p := (*provider)(v)
	return p.amount(resource, p.freeOf)
}

// All returns all amounts.
func (v *freeView) All() map[string]float64 {
	p := (*provider)(v)
	return p.allAmounts(p.freeOf)
}

// amount returns the result of of for a resource; of returns false if there is none.
func (p *provider) amount(resource string, of func(number int) (int64, bool)) (float64, bool) {
	number, known := p.table.Number(corev1.ResourceName(resource))
	if !known {
		return 0, false
	}
	amount, exists := of(number)
	return inUnits(number, amount), exists
}

func (p *provider) allAmounts(of func(number int) (int64, bool)) map[string]float64 {
	all := make(map[string]float64, len(p.table.Names()))
	for number, name := range p.table.Names() {
		if amount, exists := of(number); exists {
			all[string(name)] = inUnits(number, amount)
		}
	}
	return all
}

// inUnits converts millicores into cores.
func inUnits(number int, amount int64) float64 {
	if number == amounts.CPU {
		return float64(amount) / 1000
	}
	return float64(amount)
}

// grantedOf leaves out resources that are not granted, except cpu and memory, and unlimited ones.
func (p *provider) grantedOf(number int) (int64, bool) {
	amount := p.granted.Of(number)
	return amount, amount != amounts.Unlimited && (amount > 0 || number == amounts.CPU || number == amounts.Memory)
}

func (p *provider) freeOf(number int) (int64, bool) {
	amount, limited := p.grantedOf(number)
	return max(amount-p.assigned(number), 0), limited
}

// assignedOf has every resource that is granted or assigned.
func (p *provider) assignedOf(number int) (int64, bool) {
	amount := p.assigned(number)
	return amount, amount > 0 || number < amounts.WellKnown || p.granted.Of(number) > 0
}

// podVariable has the requests of a pod, as a values.Amounts.
type podVariable struct{ requests []amounts.Request }

// Amount returns the amount of a resource in the unit of expressions.
func (v *podVariable) Amount(resource string) (float64, bool) {
	for _, r := range v.requests {
		if r.Name == resource {
			return inUnits(r.Number, r.Amount), true
		}
	}
	return 0, false
}

// All returns all amounts.
func (v *podVariable) All() map[string]float64 {
	all := make(map[string]float64, len(v.requests))
	for _, r := range v.requests {
		all[r.Name] = inUnits(r.Number, r.Amount)
	}
	return all
}
