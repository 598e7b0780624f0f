package scheduler

import corev1 "k8s.io/api/core/v1"

// view is what expressions see of the amounts of a provider: it is a values.Amounts.
type view struct {
	table *table
	// of returns the amount of a resource, false if there is none.
	of func(number int) (int64, bool)
}

// Amount returns the amount of a resource in the unit of expressions.
func (v view) Amount(resource string) (float64, bool) {
	number, known := v.table.number[corev1.ResourceName(resource)]
	if !known {
		return 0, false
	}
	amount, exists := v.of(number)
	return inUnits(number, amount), exists
}

// All returns all amounts.
func (v view) All() map[string]float64 {
	all := make(map[string]float64, len(v.table.names))
	for number, name := range v.table.names {
		if amount, exists := v.of(number); exists {
			all[string(name)] = inUnits(number, amount)
		}
	}
	return all
}

// inUnits converts millicores into cores.
func inUnits(number int, amount int64) float64 {
	if number == cpu {
		return float64(amount) / 1000
	}
	return float64(amount)
}

// grantedOf leaves out what is not granted, but for cpu and memory, and what is unlimited.
func (p *provider) grantedOf(number int) (int64, bool) {
	amount := p.granted.of(number)
	return amount, amount != unlimited && (amount > 0 || number == cpu || number == memory)
}

func (p *provider) freeOf(number int) (int64, bool) {
	amount, limited := p.grantedOf(number)
	return max(amount-p.assigned(number), 0), limited
}

// assignedOf has everything that is granted, or assigned.
func (p *provider) assignedOf(number int) (int64, bool) {
	amount := p.assigned(number)
	return amount, amount > 0 || number < wellKnown || p.granted.of(number) > 0
}

// podVariable is the same of what a pod asks for.
type podVariable struct{ requests []request }

// Amount returns the amount of a resource in the unit of expressions.
func (v *podVariable) Amount(resource string) (float64, bool) {
	for _, r := range v.requests {
		if r.name == resource {
			return inUnits(r.number, r.amount), true
		}
	}
	return 0, false
}

// All returns all amounts.
func (v *podVariable) All() map[string]float64 {
	all := make(map[string]float64, len(v.requests))
	for _, r := range v.requests {
		all[r.name] = inUnits(r.number, r.amount)
	}
	return all
}
