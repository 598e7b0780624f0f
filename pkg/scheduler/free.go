package scheduler

// freeOfProvider returns the share of what the usable slices of a provider grant together that stays free when the
// pod is placed there: the mean of cpu, memory, and the scarce resources that the pod requests.
func (c *cycle) freeOfProvider(p *provider) float64 {
	free := 0.0
	for i := range c.measures {
		r := &c.measures[i]
		free += freeShare(p.granted.of(r.number), p.assigned(r.number), r.amount)
	}
	return free * c.perMeasure
}

func (c *cycle) freeOfSlice(s *slice) float64 {
	free := 0.0
	for i := range c.measures {
		r := &c.measures[i]
		free += freeShare(s.granted.of(r.number), s.load.assigned.of(r.number), r.amount)
	}
	return free * c.perMeasure
}

// freeShare never falls when granted rises, in spite of rounding.
func freeShare(granted, assigned, requested int64) float64 {
	switch {
	case granted == unlimited:
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
