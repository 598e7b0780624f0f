package scheduler

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
)

// AttributePrice is the attribute that holds what a provider costs, a decimal number of any unit that all share.
const AttributePrice = "price"

// provider is a Provider as the State keeps it: with everything computed that no decision changes.
type provider struct {
	// standing is the first filter that it fails whatever the pod, Passed if none.
	standing Filter
	// slices are sorted by VirtualNode.
	slices []slice
	// granted is the sum over the usable slices, and usable what is assigned to each of them.
	granted amounts
	usable  []*load
	// measured are the scores of the KPIs.
	measured measured
	// price is NaN if it is unknown.
	price float64
	// variable is what expressions see.
	variable *criteria.Provider
	Provider
}

// slice is a Slice as the State keeps it.
type slice struct {
	virtualNode string
	// standing is the first filter that it fails whatever the pod, Passed if none.
	standing Filter
	granted  amounts
	load     *load
	// scarce are the numbers of the scarce resources that it grants.
	scarce []int
}

func (s *State) newProvider(p Provider) *provider {
	kept := &provider{
		Provider: p, standing: standingOf(&p), measured: measure(&p.KPIs), price: priceOf(p.Attributes),
	}
	kept.slices = make([]slice, len(p.Slices))
	for i, granted := range p.Slices {
		kept.slices[i] = s.newSlice(granted)
	}
	slices.SortStableFunc(kept.slices, func(a, b slice) int { return strings.Compare(a.virtualNode, b.virtualNode) })
	for i := range kept.slices {
		if kept.slices[i].standing == Passed {
			kept.granted = sum(kept.granted, kept.slices[i].granted)
			kept.usable = append(kept.usable, kept.slices[i].load)
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
	kept := slice{
		virtualNode: granted.VirtualNode, granted: s.table.grants(granted.Granted), load: s.load(granted.VirtualNode),
	}
	switch {
	case !granted.Ready:
		kept.standing = NotReady
	case granted.Cordoned:
		kept.standing = Cordoned
	}
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
	for _, l := range p.usable {
		total += l.assigned.of(number)
	}
	return total
}

func standingOf(p *Provider) Filter {
	switch {
	case !p.Enabled:
		return Disabled
	case !p.Ready:
		return NotReady
	case p.Recovering:
		return Recovering
	case p.Cordoned:
		return Cordoned
	case p.Draining:
		return Draining
	}
	return Passed
}

// domain returns the provider's value of a topology key, false if it has none. What people say of a provider wins over
// what it says itself.
func (p *provider) domain(key string) (string, bool) {
	value, has := p.Attributes[key]
	if !has {
		value, has = p.Labels[key]
	}
	return value, has
}

// Price is what the provider costs; false if it does not say, or not as a decimal number.
func (p *Provider) Price() (float64, bool) {
	price := priceOf(p.Attributes)
	return price, !math.IsNaN(price)
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
