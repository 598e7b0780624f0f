package scheduler

import "github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"

// countDomains counts the application's pods in each domain of the policy's topology key. Pods count wherever they run,
// also at a provider that takes no more. It does nothing if every provider is a domain of its own.
func (c *cycle) countDomains(s *State) {
	key := c.policy.TopologyKey
	if key == "" || key == TopologyProvider {
		return
	}
	c.podsIn = map[string]int{}
	for _, p := range s.providers {
		if domain, has := p.domain(key); has {
			c.podsIn[domain] += c.appPodsAt(p)
		}
	}
}

// appPods counts the pods of the application at a provider, and in its domain.
func (c *cycle) appPods(p *provider) (atProvider, inDomain int) {
	atProvider = c.appPodsAt(p)
	if c.podsIn == nil {
		return atProvider, atProvider
	}
	if domain, has := p.domain(c.policy.TopologyKey); has {
		return atProvider, c.podsIn[domain]
	}
	return atProvider, score.NoDomain
}

// appPodsAt counts the pods of the application at a provider, without the pod itself.
func (c *cycle) appPodsAt(p *provider) int {
	if len(c.app) == 0 {
		return 0
	}
	count := 0
	for i := range p.slices {
		l := p.slices[i].load
		count += c.app[l]
		if l == c.own {
			count--
		}
	}
	return count
}
