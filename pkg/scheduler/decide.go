package scheduler

import (
	"slices"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
)

// Decide chooses a provider, and one of its slices, for the pod, and writes what it found into into, whose memory it
// uses. A nil policy is the zero Policy. It reserves nothing: the caller does so with Assign, before it decides again.
// A pod that is assigned already is to be released first, or named as the Current one's.
func (s *State) Decide(now time.Time, pod *Pod, policy *Policy, into *Decision) {
	// 1. Read what the pod asks for, and what the policy weighs.
	c := &into.cycle
	c.begin(s, now, pod, policy)
	into.reset(len(s.providers))

	// 2. Ask every provider's filters, and those of its slices; then the criteria, of those that fit.
	for i, p := range s.providers {
		verdict := &into.Verdicts[i]
		*verdict = Verdict{Provider: p.ID, several: len(p.slices) > 1}
		if c.filterProvider(p, verdict) && c.filterSlices(p, verdict) && c.filterCriteria(p, verdict) {
			c.keep(i, verdict, p)
		}
	}
	into.Err = c.failure()

	// 3. Compare those that are left: prices, and where the application's pods are.
	c.compare(s)

	// 4. Score them, by every plugin that has a weight, and choose the best; of equals, the first by name.
	c.score()
	if winner := c.best(); winner != nil {
		into.Provider, into.VirtualNode, into.Score = winner.Provider, winner.VirtualNode, winner.Total
	}
	c.end()
}

// reset forgets the decision before, and makes room for the verdicts of n providers.
func (d *Decision) reset(n int) {
	d.Provider, d.VirtualNode, d.Score, d.Err = "", "", 0, nil
	d.Verdicts = slices.Grow(d.Verdicts[:0], n)[:n]
}

// best returns the verdict of the best candidate, nil if there is none.
func (c *cycle) best() *Verdict {
	var winner *Verdict
	for i := range c.candidates {
		if v := c.candidates[i].verdict; winner == nil || v.sum > winner.sum {
			winner = v
		}
	}
	return winner
}

// cycle is one decision under way. Decision keeps it for its memory.
type cycle struct {
	now    time.Time
	pod    *Pod
	policy *Policy

	requests []request
	// weighed are the requests by which free room is measured: cpu and memory, even if nothing is asked of them, and
	// the scarce resources that the pod asks for.
	weighed []request
	// perWeighed is one divided by their number.
	perWeighed float64
	// plugins are those that have a weight and something to weigh, columns where their scores are measured, weights
	// theirs, totalWeight the sum; unscored is what the scores of every candidate begin as.
	plugins     []int
	columns     []int
	unscored    []PluginScore
	weights     [pluginCount]int64
	totalWeight int64

	// app has the pods of the pod's application, by load; own is the load that the pod itself is counted at.
	app map[*load]int
	own *load
	// domains numbers the values of the policy's topology key, domainOf has the domain of every provider, or unknown,
	// and podsIn the application's pods in every domain.
	domains          map[string]int
	domainOf, podsIn []int

	// expression is what the policy's score gave the provider asked last.
	expression points
	candidates []candidate
	scores     []PluginScore
	// cheapest is the lowest price known, mostClose the most pods of the application on one provider; fullest and
	// emptiest are of the domains.
	cheapest                     float64
	mostClose, fullest, emptiest int

	variables        *criteria.Variables
	podVariable      *criteria.Pod
	requestsVariable podVariable
	trials           [trialCount]trial
}

// candidate is a provider that no filter spoke against.
type candidate struct {
	// number is the provider's among all.
	number   int
	provider *provider
	verdict  *Verdict
	// expression is what the policy's score gave.
	expression points
	// together is how many pods of the application the provider has, near its domain; near is unknown without a domain.
	together, near int
}

// keep adds a candidate; begin made room for it.
func (c *cycle) keep(number int, verdict *Verdict, p *provider) {
	c.candidates = c.candidates[:len(c.candidates)+1]
	kept := &c.candidates[len(c.candidates)-1]
	kept.number, kept.provider, kept.verdict, kept.expression = number, p, verdict, c.expression
}

func (c *cycle) begin(s *State, now time.Time, pod *Pod, policy *Policy) {
	c.now, c.pod, c.policy = now, pod, policy
	c.requests = s.table.flatten(c.requests[:0], pod.Requests)
	c.weighed = append(c.weighed[:0], request{number: cpu}, request{number: memory})
	for _, r := range c.requests {
		switch {
		case r.number == cpu || r.number == memory:
			c.weighed[r.number].amount = r.amount
		case r.number >= wellKnown && isScarce(s.table.names[r.number]):
			c.weighed = append(c.weighed, r)
		}
	}
	c.perWeighed = 1 / float64(len(c.weighed))

	c.app, c.own = nil, nil
	if pod.App != "" {
		c.app = s.apps[pod.App]
		if own := s.assignments[pod.UID]; own.app == pod.App {
			c.own = own.load
		}
	}
	c.weigh()
	c.candidates = slices.Grow(c.candidates[:0], len(s.providers))
	c.trials = [trialCount]trial{}
	c.beginCriteria()
}

// weigh reads the policy's weights.
func (c *cycle) weigh() {
	c.weights = [pluginCount]int64{}
	if c.policy == nil || c.policy.Weights == nil {
		c.weights = defaultWeights()
	} else {
		for _, w := range c.policy.Weights {
			if n := slices.Index(pluginNames[:], w.Plugin); n >= 0 && w.Weight > 0 && c.weights[n] == 0 {
				c.weights[n] = int64(w.Weight)
			}
		}
	}
	if c.policy == nil || c.policy.Score == nil {
		c.weights[pluginExpression] = 0
	}
	if c.pod.App == "" {
		c.weights[pluginSpread], c.weights[pluginClose] = 0, 0
	}
	c.plugins, c.columns, c.unscored, c.totalWeight = c.plugins[:0], c.columns[:0], c.unscored[:0], 0
	for plugin, w := range c.weights {
		if w > 0 {
			c.plugins = append(c.plugins, plugin)
			c.columns = append(c.columns, c.column(plugin))
			c.unscored = append(c.unscored, PluginScore{Plugin: pluginNames[plugin], Weight: int32(w)})
			c.totalWeight += w
		}
	}
}

func (c *cycle) column(plugin int) int {
	switch {
	case plugin != pluginUptime:
		return plugin
	case c.policy == nil:
		return pluginCount + window24h
	}
	return pluginCount + window(c.policy.UptimeWindow)
}

// end lets go of what belongs to others; the memory stays.
func (c *cycle) end() {
	c.pod, c.policy, c.app, c.own = nil, nil, nil, nil
	clear(c.candidates)
	if c.variables != nil {
		*c.podVariable = criteria.Pod{}
	}
}
