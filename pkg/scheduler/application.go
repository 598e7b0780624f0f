package scheduler

import "github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"

// countDomains numbers the domains that the providers are in, and counts the application's pods in each. Pods count
// wherever they run, also at a provider that takes no more. It does nothing if every provider is a domain of its own.
func (c *cycle) countDomains(s *State) {
	c.domainOf, c.podsIn = c.domainOf[:0], c.podsIn[:0]
	key := c.policy.TopologyKey
	if key == "" || key == TopologyProvider {
		return
	}
	if c.domains == nil {
		c.domains = make(map[string]int)
	}
	clear(c.domains)
	for _, p := range s.providers {
		value, has := p.domain(key)
		if !has {
			c.domainOf = append(c.domainOf, unknown)
			continue
		}
		domain, numbered := c.domains[value]
		if !numbered {
			domain = len(c.podsIn)
			c.domains[value] = domain
			c.podsIn = append(c.podsIn, 0)
		}
		c.domainOf = append(c.domainOf, domain)
		c.podsIn[domain] += c.appPodsAt(p)
	}
}

// appPods counts the pods of the application at a provider, and in its domain.
func (c *cycle) appPods(number int, p *provider) (atProvider, inDomain int) {
	atProvider = c.appPodsAt(p)
	if len(c.domainOf) == 0 {
		return atProvider, atProvider
	}
	if domain := c.domainOf[number]; domain != unknown {
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
