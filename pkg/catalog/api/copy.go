package api

import (
	"maps"
	"slices"
)

// copied returns a pointer to a copy, nil for nil.
func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}

// DeepCopy returns a copy that shares no memory.
func (p *Placement) DeepCopy() Placement {
	out := *p
	out.Since, out.Score = copied(p.Since), copied(p.Score)
	return out
}

// DeepCopy returns a copy that shares no memory.
func (p *Provider) DeepCopy() Provider {
	out := *p
	out.Selected, out.Price = copied(p.Selected), copied(p.Price)
	out.Attributes = maps.Clone(p.Attributes)
	out.Resources = *p.Resources.DeepCopy()
	out.VirtualNodes = slices.Clone(p.VirtualNodes)
	for i := range out.VirtualNodes {
		out.VirtualNodes[i].Resources = *out.VirtualNodes[i].Resources.DeepCopy()
	}
	out.Conditions = slices.Clone(p.Conditions)
	k := &out.KPIs
	k.Uptime1h, k.Uptime24h = copied(k.Uptime1h), copied(k.Uptime24h)
	k.Uptime7d, k.Uptime30d = copied(k.Uptime7d), copied(k.Uptime30d)
	k.LatencyMilliseconds, k.FailureRate = copied(k.LatencyMilliseconds), copied(k.FailureRate)
	k.PodStartP50Millis, k.PodStartP90Millis = copied(k.PodStartP50Millis), copied(k.PodStartP90Millis)
	return out
}

// DeepCopy returns a copy that shares no memory.
func (s Sample) DeepCopy() Sample {
	s.LatencyMilliseconds = copied(s.LatencyMilliseconds)
	return s
}

// DeepCopy returns a copy that shares no memory.
func (p *Policy) DeepCopy() Policy {
	out := *p
	out.Consumers, out.Providers = slices.Clone(p.Consumers), slices.Clone(p.Providers)
	out.Weights, out.Conditions = slices.Clone(p.Weights), slices.Clone(p.Conditions)
	if p.Selection != nil {
		out.Selection = &Selection{Mode: p.Selection.Mode, Providers: slices.Clone(p.Selection.Providers)}
	}
	return out
}
