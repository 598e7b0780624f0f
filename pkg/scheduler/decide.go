package scheduler

import (
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Decision is the result of State.Decide.
type Decision struct {
	verdict.Result
	// accepted is for Confirm, which evaluates no expressions.
	accepted map[string]bool
}

// Decide chooses a provider, and one of its slices, for the pod. A nil policy is the zero Policy. Decide reserves
// nothing: the caller does so with Assign, before the next decision. A pod that is already assigned must be released
// first.
func (s *State) Decide(now time.Time, pod *Pod, policy *Policy) (d Decision) {
	// 1. Read the pod's requests and the policy's weights.
	c := s.newCycle(now, pod, policy)
	c.beginCriteria()
	c.beginAccepted(s)
	c.beginConstraints(s)
	d.accepted = c.constraints.accepted
	d.Verdicts = make([]verdict.Verdict, len(s.providers))

	// 2. Apply the filters of each provider and of its slices; then, to those that fit, the expressions.
	for i, p := range s.providers {
		v := &d.Verdicts[i]
		*v = verdict.Verdict{Provider: p.ID, Several: len(p.slices) > 1}
		if c.filter(p, v) && c.filterCriteria(p, v) {
			c.addCandidate(p, v)
		}
	}
	d.Err = c.failure()

	// 3. Score those that are left, by every plugin that has a weight, and choose the best; of equals, the first by name.
	c.round.Score()
	if winner := c.round.Best(); winner != nil {
		d.Provider, d.VirtualNode, d.Score = winner.Provider, winner.VirtualNode, winner.Total
	}
	return d
}

// cycle is one decision under way.
type cycle struct {
	now    time.Time
	pod    *Pod
	policy *Policy // Not nil.
	round  score.Round

	requests []amounts.Request
	// measures are the requests by which free capacity is measured: cpu and memory, even if the pod requests none, and
	// the scarce resources that the pod requests. perMeasure is one divided by their number.
	measures   []amounts.Request
	perMeasure float64
	// compared are the requests by which costs are compared; nil until they are needed.
	compared []amounts.Request

	// app has the pods of the pod's application, by load; own is the load in which the pod itself is counted.
	app map[*load]int
	own *load
	// podsIn has the application's pods by domain of the policy's topology key; nil if every provider is a domain.
	podsIn map[string]int

	// expression has the points that the policy's score gave the provider evaluated last.
	expression verdict.Points
	variables  *cel.Variables
	// read is the provider that an expression reads, readCost is celCost, without an allocation for each provider.
	read             *provider
	readCost         func() cel.Cost
	requestsVariable podVariable
	trials           [trialCount]trial

	constraints constrained
}

// addCandidate adds a provider that passed all filters, with the inputs of its scores.
func (c *cycle) addCandidate(p *provider, v *verdict.Verdict) {
	candidate := score.Candidate{Verdict: v, Measured: &p.measured, Expression: c.expression}
	if c.round.Reads(score.Free) {
		candidate.Free = c.freeOfProvider(p)
	}
	if c.round.Reads(score.App) {
		candidate.AppPods, candidate.DomainPods = c.appPods(p)
	}
	if c.round.Reads(score.Price) {
		cost := c.comparedCost(p)
		candidate.Price, candidate.Currency = cost.Value, cost.Currency
	}
	if c.round.Reads(score.Preferred) {
		candidate.Preferred = c.preferred(p)
	}
	c.round.Add(candidate)
}

func (s *State) newCycle(now time.Time, pod *Pod, policy *Policy) *cycle {
	if policy == nil {
		policy = &Policy{}
	}
	c := &cycle{now: now, pod: pod, policy: policy, requests: s.table.Flatten(nil, pod.Requests)}
	c.measures = []amounts.Request{{Number: amounts.CPU}, {Number: amounts.Memory}}
	for _, r := range c.requests {
		switch {
		case r.Number == amounts.CPU || r.Number == amounts.Memory:
			c.measures[r.Number].Amount = r.Amount
		case r.Number >= amounts.WellKnown && amounts.IsScarce(s.table.Names()[r.Number]):
			c.measures = append(c.measures, r)
		}
	}
	c.perMeasure = 1 / float64(len(c.measures))

	available := score.Free | score.Price
	if c.policy.Score != nil {
		available |= score.Expression
	}
	if pod.App != "" {
		c.app = s.apps[pod.App]
		if own := s.assignments[pod.holder()]; own.app == pod.App {
			c.own = own.load
		}
		available |= score.App
	}
	if pod.Constraints.Prefers() {
		available |= score.Preferred
	}
	c.round = score.NewRound(c.policy.Weights, c.policy.UptimeWindow, available)
	if c.round.Reads(score.App) {
		c.countDomains(s)
	}
	return c
}
