package scheduler

// Filter names what speaks against a provider or one of its slices. The order is that in which filters are asked: a
// greater one is further on the way to fitting.
type Filter uint8

// The filters of a provider cluster, of a slice, and of the criteria, in this order.
const (
	Passed Filter = iota
	Disabled
	NotReady
	Recovering
	Cordoned
	Draining
	Origin
	NotOffloaded
	NotSelected
	NotNamed

	// NothingGranted says that the provider has no slice at all.
	NothingGranted
	// Left says that the pod is to be moved away from there.
	Left
	VolumesElsewhere
	RefusedLately
	Insufficient
	TooManyPods

	PolicyFilter
	PodFilter
	// Failed says that an expression, of a filter or of a score, failed while it ran.
	Failed
)

// String returns the filter as a reason; that of Insufficient lacks the resource.
func (f Filter) String() string {
	return [...]string{
		Passed:           "fits",
		Disabled:         "disabled",
		NotReady:         "not ready",
		Recovering:       "recovering",
		Cordoned:         "cordoned",
		Draining:         "draining",
		Origin:           "is the pod's origin",
		NotOffloaded:     "namespace not offloaded",
		NotSelected:      "not selected by its consumer",
		NotNamed:         "not named by the policy",
		NothingGranted:   "nothing granted",
		Left:             "moved away from",
		VolumesElsewhere: "volumes elsewhere",
		RefusedLately:    "refused lately",
		Insufficient:     "insufficient",
		TooManyPods:      "too many pods",
		PolicyFilter:     "policy filter",
		PodFilter:        "pod filter",
		Failed:           "filter error",
	}[f]
}

// filterProvider says whether nothing speaks against the provider as a whole.
func (c *cycle) filterProvider(p *provider, verdict *Verdict) bool {
	switch {
	case p.standing != Passed:
		verdict.Filter = p.standing
		if p.standing == NotReady {
			verdict.Detail = p.NotReady
		}
	case c.pod.Consumer != "" && c.pod.Consumer == p.ID:
		verdict.Filter = Origin
	case !p.Namespaces.Has(c.pod.Namespace):
		verdict.Filter = NotOffloaded
	case !c.pod.selects(p.ID):
		verdict.Filter = NotSelected
	case c.policy != nil && c.policy.Named != nil && !c.policy.Named.Has(p.ID):
		verdict.Filter = NotNamed
	}
	return verdict.Filter == Passed
}

// filterSlices says whether a slice of the provider fits, and names the one to take. Otherwise the verdict is that of
// the slice that came furthest, of equals the first by name.
func (c *cycle) filterSlices(p *provider, verdict *Verdict) bool {
	var chosen *slice
	furthest, furthestRequest := NothingGranted, -1
	if len(p.slices) > 0 {
		furthest = Passed
	}
	for i := range p.slices {
		s := &p.slices[i]
		filter, request := c.filterSlice(s)
		switch {
		case filter == Passed && (chosen == nil || c.prefers(s, chosen)):
			chosen = s
		case filter > furthest, filter == furthest && request > furthestRequest:
			furthest, furthestRequest = filter, request
		}
	}
	if chosen != nil {
		verdict.VirtualNode = chosen.virtualNode
		return true
	}
	verdict.Filter = furthest
	if furthest == Insufficient {
		verdict.Detail = c.requests[furthestRequest].name
	}
	return false
}

// filterSlice returns the first filter that the slice fails; with Insufficient, the index of the request too large.
func (c *cycle) filterSlice(s *slice) (Filter, int) {
	switch {
	case s.standing != Passed:
		return s.standing, -1
	case c.pod.Current != "" && c.pod.Current == s.virtualNode:
		return Left, -1
	case c.pod.VolumesAt != "" && c.pod.VolumesAt != s.virtualNode:
		return VolumesElsewhere, -1
	}
	if len(c.pod.Refused) > 0 && c.now.Before(c.pod.Refused[s.virtualNode]) {
		return RefusedLately, -1
	}
	for i := range c.requests {
		r := &c.requests[i]
		if r.number != unknown && r.amount <= s.granted.of(r.number)-s.load.assigned.of(r.number) {
			continue
		}
		if r.number == pods {
			return TooManyPods, -1
		}
		return Insufficient, i
	}
	return Passed, -1
}

// prefers says whether a pod that fits both slices goes to a rather than to b, which is before it by name: not to one
// that holds scarce resources for others, then to the one with more free room.
func (c *cycle) prefers(a, b *slice) bool {
	if spareA, spareB := c.spared(a), c.spared(b); spareA != spareB {
		return spareA < spareB
	}
	return c.freeOfSlice(a) > c.freeOfSlice(b)
}

// spared counts the scarce resources of a slice that the pod does not ask for.
func (c *cycle) spared(s *slice) int {
	count := len(s.scarce)
	for _, number := range s.scarce {
		for i := wellKnownWeighed; i < len(c.weighed); i++ {
			if c.weighed[i].number == number {
				count--
			}
		}
	}
	return count
}
