package scheduler

import (
	"slices"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
)

// unknown is the domain of a provider without one.
const unknown = -1

// domains are the domains that providers are in by a topology key. The next decision about the same providers uses them
// again.
type domains struct {
	key string
	of  *generation
	// domainOf has the domain of every provider, or unknown; numbers has the domains by their value.
	domainOf []int
	numbers  map[string]int
}

// number numbers the domains of the State's providers.
func (d *domains) number(s *State, key string) {
	if d.of == s.generation && d.key == key {
		return
	}
	d.key, d.of, d.domainOf = key, s.generation, d.domainOf[:0]
	if d.numbers == nil {
		d.numbers = make(map[string]int)
	}
	clear(d.numbers)
	for _, p := range s.providers {
		value, has := p.domain(key)
		if !has {
			d.domainOf = append(d.domainOf, unknown)
			continue
		}
		domain, numbered := d.numbers[value]
		if !numbered {
			domain = len(d.numbers)
			d.numbers[value] = domain
		}
		d.domainOf = append(d.domainOf, domain)
	}
}

// countDomains counts the application's pods in each domain. Pods count wherever they run, also at a provider that
// takes no more. It does nothing if every provider is a domain of its own.
func (c *cycle) countDomains(s *State) {
	c.podsIn = c.podsIn[:0]
	key := c.policy.TopologyKey
	if key == "" || key == TopologyProvider {
		return
	}
	c.domains.number(s, key)
	// One more, for a State in which no provider has a domain.
	c.podsIn = slices.Grow(c.podsIn, len(c.domains.numbers)+1)[:len(c.domains.numbers)+1]
	clear(c.podsIn)
	for i, domain := range c.domains.domainOf {
		if domain != unknown {
			c.podsIn[domain] += c.appPodsAt(s.providers[i])
		}
	}
}

// appPods counts the pods of the application at a provider, and in its domain.
func (c *cycle) appPods(number int, p *provider) (atProvider, inDomain int) {
	atProvider = c.appPodsAt(p)
	if len(c.podsIn) == 0 {
		return atProvider, atProvider
	}
	if domain := c.domains.domainOf[number]; domain != unknown {
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
