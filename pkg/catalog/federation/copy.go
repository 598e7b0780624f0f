package federation

import (
	"maps"
	"slices"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

// What follows copies all that a caller could write to.

// copied is a pointer to a copy, nil for nil.
func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}

func copyPlacement(p *api.Placement) api.Placement {
	out := *p
	out.Since, out.Score = copied(p.Since), copied(p.Score)
	return out
}

func copyProvider(p *api.Provider) api.Provider {
	out := *p
	out.Selected, out.Price = copied(p.Selected), copied(p.Price)
	out.Attributes = maps.Clone(p.Attributes)
	out.Resources = copyResources(p.Resources)
	out.VirtualNodes = slices.Clone(p.VirtualNodes)
	for i := range out.VirtualNodes {
		out.VirtualNodes[i].Resources = copyResources(out.VirtualNodes[i].Resources)
	}
	out.Conditions = slices.Clone(p.Conditions)
	k := &out.KPIs
	k.Uptime1h, k.Uptime24h = copied(k.Uptime1h), copied(k.Uptime24h)
	k.Uptime7d, k.Uptime30d = copied(k.Uptime7d), copied(k.Uptime30d)
	k.LatencyMilliseconds, k.FailureRate = copied(k.LatencyMilliseconds), copied(k.FailureRate)
	k.PodStartP50Millis, k.PodStartP90Millis = copied(k.PodStartP50Millis), copied(k.PodStartP90Millis)
	return out
}

func copyResources(r api.Resources) api.Resources {
	return api.Resources{Granted: r.Granted.DeepCopy(), Assigned: r.Assigned.DeepCopy(), Free: r.Free.DeepCopy()}
}

// copyPolicy shows a policy to a scope: a consumer does not see whom else it is for.
func copyPolicy(p *api.Policy, s Scope) api.Policy {
	out := *p
	out.Consumers, out.Providers = slices.Clone(p.Consumers), slices.Clone(p.Providers)
	if !s.All && len(p.Consumers) > 0 {
		out.Consumers = []string{s.Consumer}
	}
	out.Weights, out.Conditions = slices.Clone(p.Weights), slices.Clone(p.Conditions)
	if p.Selection != nil {
		out.Selection = &api.Selection{Mode: p.Selection.Mode, Providers: slices.Clone(p.Selection.Providers)}
	}
	return out
}
