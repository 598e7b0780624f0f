package scheduler

import (
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// filter reports whether the provider passes all filters but the expressions, and chooses one of its slices.
func (c *cycle) filter(p *provider, v *verdict.Verdict) bool {
	return c.filterProvider(p, v) && c.filterConstraints(p, v) && c.filterVolumes(p, v) && c.filterCost(p, v) && c.filterSlices(p, v)
}

// filterProvider reports whether the provider passes the filters of a provider cluster.
func (c *cycle) filterProvider(p *provider, v *verdict.Verdict) bool {
	switch {
	case p.filter != verdict.Passed:
		v.Filter = p.filter
		if p.filter == verdict.NotReady {
			v.Detail = p.NotReady
		}
	case c.pod.Consumer != "" && c.pod.Consumer == p.ID:
		v.Filter = verdict.Origin
	case !p.Namespaces.Has(c.pod.Namespace):
		v.Filter, v.Detail = verdict.NotOffloaded, p.Missing[c.pod.Namespace]
	case !c.pod.selects(p.ID):
		v.Filter = verdict.NotSelected
	case c.policy.Named != nil && !c.policy.Named.Has(p.ID):
		v.Filter = verdict.NotNamed
	}
	return v.Filter == verdict.Passed
}

// filterSlices reports whether a slice of the provider fits, and chooses one. Otherwise the verdict has the filter of
// the slice that passed the most filters; of equals, the first by name.
func (c *cycle) filterSlices(p *provider, v *verdict.Verdict) bool {
	var chosen *slice
	furthest, furthestRequest := verdict.NothingGranted, -1
	if len(p.slices) > 0 {
		furthest = verdict.Passed
	}
	for i := range p.slices {
		s := &p.slices[i]
		filter, request := c.filterSlice(s)
		switch {
		case filter == verdict.Passed && (chosen == nil || c.prefers(s, chosen)):
			chosen = s
		case filter > furthest, filter == furthest && request > furthestRequest:
			furthest, furthestRequest = filter, request
		}
	}
	if chosen != nil {
		v.VirtualNode = chosen.virtualNode
		return true
	}
	v.Filter = furthest
	if furthest == verdict.Insufficient {
		v.Detail = c.requests[furthestRequest].Name
	}
	return false
}

// filterSlice returns the first filter that the slice fails; with Insufficient, the index of the request too large.
func (c *cycle) filterSlice(s *slice) (verdict.Filter, int) {
	if s.filter != verdict.Passed {
		return s.filter, -1
	}
	if s.load.claims.closedFor(c.pod.Owner, c.now) {
		return verdict.StartsNothing, -1
	}
	if len(c.pod.Refused) > 0 && c.now.Before(c.pod.refusedUntil(s.virtualNode)) {
		return verdict.RefusedLately, -1
	}
	for i := range c.requests {
		r := &c.requests[i]
		if r.Number != amounts.Unknown {
			if granted := s.granted.Of(r.Number); granted == amounts.Unlimited || r.Amount <= granted-s.load.assigned.Of(r.Number) {
				continue
			}
		}
		if r.Number == amounts.Pods {
			return verdict.TooManyPods, -1
		}
		return verdict.Insufficient, i
	}
	if s.load.claims != nil && c.isReserved(s) {
		return verdict.Reserved, -1
	}
	return verdict.Passed, -1
}

// isReserved reports whether the pod fits into a slice only without the reservation for another pod.
func (c *cycle) isReserved(s *slice) bool {
	reserved := s.load.claims.reservedBefore(c.pod.UID)
	for i := range c.requests {
		n := c.requests[i].Number // Not Unknown: the pod fits into the slice.
		if granted := s.granted.Of(n); granted != amounts.Unlimited && c.requests[i].Amount > granted-s.load.assigned.Of(n)-reserved.Of(n) {
			return true
		}
	}
	return false
}

// prefers reports whether a pod that fits both slices goes to a rather than to b, which is before it by name. It avoids
// the slice that has scarce resources for other pods, then prefers the one with more free capacity.
func (c *cycle) prefers(a, b *slice) bool {
	if spareA, spareB := c.spared(a), c.spared(b); spareA != spareB {
		return spareA < spareB
	}
	return c.freeOfSlice(a) > c.freeOfSlice(b)
}

// firstScarce is the index in cycle.measures of the first scarce resource, after cpu and memory.
const firstScarce = 2

// spared counts the scarce resources of a slice that the pod does not request.
func (c *cycle) spared(s *slice) int {
	count := len(s.scarce)
	for _, number := range s.scarce {
		for i := firstScarce; i < len(c.measures); i++ {
			if c.measures[i].Number == number {
				count--
			}
		}
	}
	return count
}
