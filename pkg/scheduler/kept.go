package scheduler

import (
	"maps"
	"slices"
	"strings"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// provider is a Provider as the State keeps it, with every value computed that does not depend on a decision.
type provider struct {
	// filter is the first filter that it fails for every pod, Passed if none.
	filter verdict.Filter
	// slices are sorted by VirtualNode.
	slices []slice
	// granted is the sum over the usable slices, and usable has the load of each of them.
	granted amounts.Flat
	usable  []*load
	// measured are the scores of the KPIs.
	measured score.Measured
	// variable is the provider as expressions see it; their resources are those in table.
	variable cel.Provider
	table    *amounts.Table
	Provider
}

// slice is a Slice as the State keeps it.
type slice struct {
	virtualNode string
	filter      verdict.Filter
	granted     amounts.Flat
	load        *load
	// scarce are the numbers of the scarce resources that it grants.
	scarce []int
}

func (s *State) newProvider(p Provider) *provider {
	kept := &provider{
		Provider: p, filter: providerFilter(&p), measured: score.Measure(p.KPIs),
	}
	kept.slices = make([]slice, len(p.Slices))
	for i, granted := range p.Slices {
		kept.slices[i] = s.newSlice(p.ID, granted)
	}
	slices.SortStableFunc(kept.slices, func(a, b slice) int { return strings.Compare(a.virtualNode, b.virtualNode) })
	for i := range kept.slices {
		if kept.slices[i].filter == verdict.Passed {
			kept.granted = amounts.Sum(kept.granted, kept.slices[i].granted)
			kept.usable = append(kept.usable, kept.slices[i].load)
		}
	}
	kept.variable = cel.Provider{
		ID: p.ID, Labels: values.NewTexts(p.Labels).Keep(), Attributes: values.NewTexts(p.Attributes).Keep(), KPIs: p.KPIs,
	}
	kept.showAmounts(&s.table)
	return kept
}

// showAmounts makes the provider's amounts visible to expressions.
func (p *provider) showAmounts(t *amounts.Table) {
	p.table = t
	p.variable.Granted, p.variable.Assigned, p.variable.Free = (*grantedView)(p), (*assignedView)(p), (*freeView)(p)
}

func (s *State) newSlice(provider string, granted Slice) slice {
	kept := slice{
		virtualNode: granted.VirtualNode, filter: granted.Filter, granted: s.table.Grants(granted.Granted),
		load: s.load(Place{Provider: provider, VirtualNode: granted.VirtualNode}),
	}
	kept.load.slices++
	kept.load.claims = s.claim(granted.Closed, granted.Reserved)
	for _, name := range slices.Sorted(maps.Keys(granted.Granted)) {
		if amounts.IsScarce(name) && granted.Granted[name] > 0 {
			kept.scarce = append(kept.scarce, s.table.Intern(name))
		}
	}
	return kept
}

// assigned returns how much of a resource is assigned to the usable slices.
func (p *provider) assigned(number int) int64 {
	total := int64(0)
	for _, l := range p.usable {
		total = resources.Sum(total, l.assigned.Of(number))
	}
	return total
}

func providerFilter(p *Provider) verdict.Filter {
	switch {
	case !p.Enabled:
		return verdict.Disabled
	case !p.Ready:
		return verdict.NotReady
	case p.Recovering:
		return verdict.Recovering
	case p.Cordoned:
		return verdict.Cordoned
	case p.Draining:
		return verdict.Draining
	}
	return verdict.Passed
}

// domain returns the provider's value of a policy's topology key, false if it has none. An attribute, which an
// administrator sets, comes before a label, which the provider advertises.
func (p *provider) domain(key string) (string, bool) {
	value, has := p.Attributes[key]
	if !has {
		value, has = p.Labels[key]
	}
	return value, has
}
