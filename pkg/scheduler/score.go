package scheduler

import (
	"math"
	"slices"
	"time"
)

// The score plugins, in the order of their names.
const (
	pluginClose = iota
	pluginExpression
	pluginFailures
	pluginFree
	pluginLatency
	pluginPacked
	pluginPrice
	pluginSpread
	pluginStart
	pluginUptime
	pluginCount
)

var pluginNames = [pluginCount]string{
	pluginClose:      "close",
	pluginExpression: "expression",
	pluginFailures:   "failures",
	pluginFree:       "free",
	pluginLatency:    "latency",
	pluginPacked:     "packed",
	pluginPrice:      "price",
	pluginSpread:     "spread",
	pluginStart:      "start",
	pluginUptime:     "uptime",
}

// defaultWeights are those of a policy that names none. The expression is a policy's own, and there only if it has one.
func defaultWeights() [pluginCount]int64 {
	return [pluginCount]int64{
		pluginExpression: 3,
		pluginFailures:   2,
		pluginFree:       3,
		pluginLatency:    1,
		pluginSpread:     2,
		pluginStart:      1,
		pluginUptime:     2,
	}
}

// points are thousandths of a point of a score: scores are compared as whole numbers, which add up in any order.
type points int32

const (
	best    points = 100_000
	neutral        = best / 2
)

// share returns the points of a share of 0 to 1, rounded.
func share(s float64) points {
	if s >= 1 {
		return best
	}
	return points(s*float64(best) + 0.5)
}

const (
	// latencyReference and startReference are what scores like an unknown: half.
	latencyReference = 100 * time.Millisecond
	startReference   = 10 * time.Second
)

// The windows of an uptime, from the shortest.
const (
	window1h = iota
	window24h
	window7d
	window30d
	windowCount
)

// measured are the scores that a provider's KPIs give it: one column for every plugin that reads nothing else, and one
// for every window of the uptime. The other columns say compared.
type measured [pluginCount + windowCount]points

// compared is in the column of a plugin that depends on the pod, or on the other providers.
const compared points = -1

func measure(k *KPIs) measured {
	var m measured
	for column := range m {
		m[column] = compared
	}
	m[pluginLatency] = duration(k.Latency, latencyReference)
	m[pluginStart] = duration(k.PodStartP50, startReference)
	m[pluginFailures] = neutral
	if isShare(k.FailureRate) {
		m[pluginFailures] = best - share(*k.FailureRate)
	}
	uptime := neutral
	for window, known := range [windowCount]*float64{k.Uptime1h, k.Uptime24h, k.Uptime7d, k.Uptime30d} {
		if isShare(known) {
			uptime = share(*known)
		}
		m[pluginCount+window] = uptime
	}
	return m
}

// duration is 100 for none, 50 for the reference, and falls towards 0.
func duration(d *time.Duration, reference time.Duration) points {
	if d == nil || *d < 0 {
		return neutral
	}
	return share(float64(reference) / (float64(reference) + float64(*d)))
}

func isShare(s *float64) bool { return s != nil && *s >= 0 && *s <= 1 }

// window returns the longest window that is not longer than asked for.
func window(asked time.Duration) int {
	const day = 24 * time.Hour
	switch {
	case asked >= 30*day:
		return window30d
	case asked >= 7*day:
		return window7d
	case asked >= day, asked <= 0:
		return window24h
	}
	return window1h
}

// wellKnownWeighed is where, in cycle.weighed, the scarce resources begin.
const wellKnownWeighed = 2

// compare finds what some scores of a candidate depend on: the other candidates, and where the application's pods
// are. Those count wherever they run, on a provider that takes no more as well.
func (c *cycle) compare(s *State) {
	c.cheapest = math.Inf(1)
	for i := range c.candidates {
		if price := c.candidates[i].provider.price; price < c.cheapest {
			c.cheapest = price
		}
	}
	if c.weights[pluginSpread] == 0 && c.weights[pluginClose] == 0 {
		return
	}
	key := c.topologyKey()
	if key != TopologyProvider {
		c.countDomains(s, key)
	}
	c.mostClose, c.fullest, c.emptiest = 0, 0, math.MaxInt
	for i := range c.candidates {
		kept := &c.candidates[i]
		kept.together = c.podsAt(kept.provider)
		kept.near = kept.together
		if key != TopologyProvider {
			kept.near = unknown
			if domain := c.domainOf[kept.number]; domain != unknown {
				kept.near = c.podsIn[domain]
			}
		}
		c.mostClose = max(c.mostClose, kept.together)
		if kept.near != unknown {
			c.fullest, c.emptiest = max(c.fullest, kept.near), min(c.emptiest, kept.near)
		}
	}
}

func (c *cycle) topologyKey() string {
	if c.policy == nil || c.policy.Spread == nil || c.policy.Spread.TopologyKey == "" {
		return TopologyProvider
	}
	return c.policy.Spread.TopologyKey
}

// countDomains numbers the domains that the providers are in, and counts the application's pods in each.
func (c *cycle) countDomains(s *State, key string) {
	if c.domains == nil {
		c.domains = make(map[string]int)
	}
	clear(c.domains)
	c.domainOf, c.podsIn = c.domainOf[:0], c.podsIn[:0]
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
		c.podsIn[domain] += c.podsAt(p)
	}
}

// podsAt counts the pods of the application at a provider, without the pod itself.
func (c *cycle) podsAt(p *provider) int {
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

// score writes the scores of all candidates into their verdicts.
func (c *cycle) score() {
	if c.totalWeight == 0 {
		return
	}
	n := len(c.plugins)
	c.scores = slices.Grow(c.scores[:0], n*len(c.candidates))[:n*len(c.candidates)]
	for k := range c.candidates {
		scores := c.scores[k*n : (k+1)*n : (k+1)*n]
		copy(scores, c.unscored)
		kept := &c.candidates[k]
		total := int64(0)
		for i, plugin := range c.plugins {
			given := kept.provider.measured[c.columns[i]]
			if given == compared {
				given = c.points(plugin, kept)
			}
			scores[i].points, scores[i].Score = given, int((given+500)/1000)
			total += c.weights[plugin] * int64(given)
		}
		kept.verdict.Scores, kept.verdict.sum = scores, total
		kept.verdict.Total = int((2*total + c.totalWeight*1000) / (2 * c.totalWeight * 1000))
	}
}

// points returns the points of a plugin that no column has.
func (c *cycle) points(plugin int, kept *candidate) points {
	switch plugin {
	case pluginClose:
		return share(float64(kept.together) / float64(max(c.mostClose, 1)))
	case pluginExpression:
		return kept.expression
	case pluginFree:
		return share(c.freeOfProvider(kept.provider))
	case pluginPacked:
		return best - share(c.freeOfProvider(kept.provider))
	case pluginPrice:
		return c.pointsOfPrice(kept.provider.price)
	case pluginSpread:
		return c.pointsOfSpread(kept.near)
	}
	return neutral
}

// pointsOfPrice gives the cheapest candidate 100, one that is twice as dear 50.
func (c *cycle) pointsOfPrice(price float64) points {
	switch {
	case math.IsNaN(price):
		return neutral
	case price == c.cheapest:
		return best
	}
	return share(c.cheapest / price)
}

// pointsOfSpread gives the domain with the fewest pods of the application 100; the others less, the more uneven the
// pods are spread. It is kube-scheduler's formula (plugin PodTopologySpread).
func (c *cycle) pointsOfSpread(near int) points {
	switch {
	case near == unknown:
		return neutral
	case c.fullest == 0:
		return best
	}
	return share(float64(c.fullest+c.emptiest-near) / float64(c.fullest))
}

// freeOfProvider returns the share of what the usable slices of a provider grant together that stays free when the
// pod is placed there: the mean of cpu, memory, and the scarce resources that the pod asks for.
func (c *cycle) freeOfProvider(p *provider) float64 {
	free := 0.0
	for i := range c.weighed {
		r := &c.weighed[i]
		free += freeShare(p.granted.of(r.number), p.assigned(r.number), r.amount)
	}
	return free * c.perWeighed
}

func (c *cycle) freeOfSlice(s *slice) float64 {
	free := 0.0
	for i := range c.weighed {
		r := &c.weighed[i]
		free += freeShare(s.granted.of(r.number), s.load.assigned.of(r.number), r.amount)
	}
	return free * c.perWeighed
}

// freeShare is written such that rounding, too, never lets it fall when granted rises.
func freeShare(granted, assigned, asked int64) float64 {
	switch {
	case granted == unlimited:
		return 1
	case granted <= 0:
		return 0
	}
	used := (float64(assigned) + float64(asked)) / float64(granted)
	if used >= 1 {
		return 0
	}
	return 1 - used
}
