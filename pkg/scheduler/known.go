package scheduler

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
)

// AttributePrice is the attribute that holds what a provider costs, a decimal number of any unit that all share.
const AttributePrice = "price"

// provider is a Provider as the State keeps it: with everything computed that no decision changes.
type provider struct {
	Provider
	// slices are sorted by VirtualNode.
	slices []slice
	// granted is the sum over the usable slices.
	granted amounts
	// measured are the scores of the KPIs.
	measured measured
	// price is NaN if it is unknown.
	price float64
	// variable is what expressions see.
	variable *criteria.Provider
}

// slice is a Slice as the State keeps it.
type slice struct {
	Slice
	granted amounts
	load    *load
	// scarce are the numbers of the scarce resources that it grants.
	scarce []int
}

// usable says whether new pods may go there at all.
func (s *slice) usable() bool { return s.Ready && !s.Cordoned }

func (s *State) newProvider(p Provider) *provider {
	kept := &provider{Provider: p, measured: measure(&p.KPIs), price: priceOf(p.Attributes)}
	kept.slices = make([]slice, len(p.Slices))
	for i, granted := range p.Slices {
		kept.slices[i] = s.newSlice(granted)
	}
	slices.SortStableFunc(kept.slices, func(a, b slice) int { return strings.Compare(a.VirtualNode, b.VirtualNode) })
	for i := range kept.slices {
		if kept.slices[i].usable() {
			kept.granted = sum(kept.granted, kept.slices[i].granted)
		}
	}
	kept.variable = &criteria.Provider{
		ID: p.ID, Labels: p.Labels, Attributes: p.Attributes, KPIs: variablesOf(&p.KPIs),
		Granted:  view{&s.table, kept.grantedOf},
		Assigned: view{&s.table, kept.assignedOf},
		Free:     view{&s.table, kept.freeOf},
	}
	return kept
}

func (s *State) newSlice(granted Slice) slice {
	kept := slice{Slice: granted, granted: s.table.grants(granted.Granted), load: s.load(granted.VirtualNode)}
	kept.load.slices++
	for _, name := range slices.Sorted(maps.Keys(granted.Granted)) {
		if isScarce(name) && granted.Granted[name] > 0 {
			kept.scarce = append(kept.scarce, s.table.number[name])
		}
	}
	return kept
}

// sum adds up grants, in which unlimited stays unlimited.
func sum(a, b amounts) amounts {
	for number, amount := range b {
		a = a.add(number, 0)
		if amount == unlimited || a[number] == unlimited {
			a[number] = unlimited
		} else {
			a[number] += amount
		}
	}
	return a
}

// assigned returns how much of a resource is assigned to the usable slices.
func (p *provider) assigned(number int) int64 {
	total := int64(0)
	for i := range p.slices {
		if p.slices[i].usable() {
			total += p.slices[i].load.assigned.of(number)
		}
	}
	return total
}

// priceOf returns NaN for a price that is absent, negative, or not a decimal number.
func priceOf(attributes map[string]string) float64 {
	text := attributes[AttributePrice]
	price, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.Trim(text, "0123456789.") != "" {
		return math.NaN()
	}
	return price
}

// view is what expressions see of the amounts of a provider.
type view struct {
	table *table
	// of returns the amount of a resource, false if there is none to tell.
	of func(number int) (int64, bool)
}

var _ criteria.Amounts = view{}

// Amount returns the amount of a resource in the unit of expressions.
func (v view) Amount(resource string) (float64, bool) {
	number, known := v.table.numberOf(resource)
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

// podVariable is what expressions see of what a pod asks for.
type podVariable struct{ requests []request }

var _ criteria.Amounts = (*podVariable)(nil)

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

// variablesOf returns the KPIs that are known, in the units of expressions.
func variablesOf(k *KPIs) map[string]float64 {
	kpis := make(map[string]float64)
	for name, share := range map[string]*float64{
		criteria.Uptime1h: k.Uptime1h, criteria.Uptime24h: k.Uptime24h, criteria.Uptime7d: k.Uptime7d,
		criteria.Uptime30d: k.Uptime30d, criteria.FailureRate: k.FailureRate,
	} {
		if isShare(share) {
			kpis[name] = *share
		}
	}
	for name, duration := range map[string]*time.Duration{
		criteria.PodStartP50Seconds: k.PodStartP50, criteria.PodStartP90Seconds: k.PodStartP90,
	} {
		if duration != nil {
			kpis[name] = duration.Seconds()
		}
	}
	if k.Latency != nil {
		kpis[criteria.LatencyMilliseconds] = float64(*k.Latency) / float64(time.Millisecond)
	}
	return kpis
}
