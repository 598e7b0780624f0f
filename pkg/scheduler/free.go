package scheduler

import "github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"

// freeOfProvider returns the share of the usable slices' total grant that stays free when the pod is placed there: the
// mean of cpu, memory, and the scarce resources that the pod requests.
func (c *cycle) freeOfProvider(p *provider) float64 {
	free := 0.0
	for i := range c.measures {
		r := &c.measures[i]
		free += freeShare(p.granted.Of(r.Number), p.assigned(r.Number), r.Amount)
	}
	return free * c.perMeasure
}

func (c *cycle) freeOfSlice(s *slice) float64 {
	free := 0.0
	for i := range c.measures {
		r := &c.measures[i]
		free += freeShare(s.granted.Of(r.Number), s.load.assigned.Of(r.Number), r.Amount)
	}
	return free * c.perMeasure
}

// freeShare never falls when granted rises, in spite of rounding.
func freeShare(granted, assigned, requested int64) float64 {
	switch {
	case granted == amounts.Unlimited:
		return 1
	case granted <= 0:
		return 0
	}
	used := (float64(assigned) + float64(requested)) / float64(granted)
	if used >= 1 {
		return 0
	}
	return 1 - used
}
