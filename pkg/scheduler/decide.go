package scheduler

import (
	"slices"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Decision is the result of State.Decide. It owns its memory and can be passed to Decide again, which overwrites
// everything, Verdicts and their Scores included; a copy shares that memory. The zero Decision is ready for use.
type Decision struct {
	verdict.Result
	cycle cycle
}

// Decide chooses a provider, and one of its slices, for the pod, and writes the result to into, whose memory it reuses.
// A nil policy is the zero Policy. Decide reserves nothing: the caller does so with Assign, before the next decision. A
// pod that is already assigned must be released first.
func (s *State) Decide(now time.Time, pod *Pod, policy *Policy, into *Decision) {
	// 1. Read the pod's requests and the policy's weights.
	c := &into.cycle
	c.begin(s, now, pod, policy)
	c.beginCriteria()
	into.Result = verdict.Result{Verdicts: slices.Grow(into.Verdicts[:0], len(s.providers))[:len(s.providers)]}

	// 2. Apply the filters of each provider and of its slices; then, to those that fit, the expressions.
	for i, p := range s.providers {
		v := &into.Verdicts[i]
		*v = verdict.Verdict{Provider: p.ID, Several: len(p.slices) > 1}
		if c.filterProvider(p, v) && c.filterSlices(p, v) && c.filterCriteria(p, v) {
			c.addCandidate(i, p, v)
		}
	}
	into.Err = c.failure()

	// 3. Score those that are left, by every plugin that has a weight, and choose the best; of equals, the first by name.
	c.round.Score()
	if winner := c.round.Best(); winner != nil {
		into.Provider, into.VirtualNode, into.Score = winner.Provider, winner.VirtualNode, winner.Total
	}
	c.end()
}

// cycle is one decision under way. Decision keeps it for its memory.
type cycle struct {
	now    time.Time
	pod    *Pod
	policy *Policy // &anything for a pod without one.
	round  score.Round

	anything Policy

	requests []amounts.Request
	// measures are the requests by which free capacity is measured: cpu and memory, even if the pod requests none, and
	// the scarce resources that the pod requests. perMeasure is one divided by their number.
	measures   []amounts.Request
	perMeasure float64

	// app has the pods of the pod's application, by load; own is the load in which the pod itself is counted.
	app map[*load]int
	own *load
	// domains are the domains of the policy's topology key, and podsIn the application's pods in each. podsIn is empty
	// if every provider is a domain.
	domains domains
	podsIn  []int

	// expression has the points that the policy's score gave the provider evaluated last.
	expression       verdict.Points
	variables        *cel.Variables
	requestsVariable podVariable
	trials           [trialCount]trial
}

// addCandidate adds a provider that passed all filters, with the inputs of its scores.
func (c *cycle) addCandidate(number int, p *provider, v *verdict.Verdict) {
	candidate := c.round.Add()
	*candidate = score.Candidate{Verdict: v, Measured: &p.measured, Price: p.price, Expression: c.expression}
	if c.round.Reads(score.Free) {
		candidate.Free = c.freeOfProvider(p)
	}
	if c.round.Reads(score.App) {
		candidate.AppPods, candidate.DomainPods = c.appPods(number, p)
	}
}

func (c *cycle) begin(s *State, now time.Time, pod *Pod, policy *Policy) {
	c.now, c.pod, c.policy = now, pod, policy
	if policy == nil {
		c.policy = &c.anything
	}
	c.requests = s.table.Flatten(c.requests[:0], pod.Requests)
	c.measures = append(c.measures[:0], amounts.Request{Number: amounts.CPU}, amounts.Request{Number: amounts.Memory})
	for _, r := range c.requests {
		switch {
		case r.Number == amounts.CPU || r.Number == amounts.Memory:
			c.measures[r.Number].Amount = r.Amount
		case r.Number >= amounts.WellKnown && amounts.IsScarce(s.table.Names()[r.Number]):
			c.measures = append(c.measures, r)
		}
	}
	c.perMeasure = 1 / float64(len(c.measures))

	available := score.Free
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
	c.round.Begin(c.policy.Weights, c.policy.UptimeWindow, available, len(s.providers))
	if c.round.Reads(score.App) {
		c.countDomains(s)
	}
	c.trials = [trialCount]trial{}
}

// end drops the references to other objects and keeps the memory.
func (c *cycle) end() {
	c.pod, c.policy, c.app, c.own = nil, nil, nil, nil
	c.round.End()
	if c.variables != nil {
		c.variables.SetPod(&cel.Pod{})
	}
}
