package scheduler

import (
	"errors"
	"maps"
	"math"

	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
)

// The expressions of a decision.
const (
	trialPolicy = iota
	trialPod
	trialScore
	trialCount
)

// trial counts on how many providers an expression was asked, and on how many it failed; first is how on the first.
type trial struct {
	asked, failed int
	first         error
	// stopped counts on how many it cost too much, last is how on the last of them.
	stopped int
	last    error
}

// maxStopped is on how many providers an expression may cost too much. Then it is asked no more, and has failed on the
// others as well: nobody holds up decisions for long by an expression.
const maxStopped = 3

// failure returns the error of an expression that failed wherever it was asked.
func (c *cycle) failure() error {
	for i := range c.trials {
		if t := &c.trials[i]; t.asked > 0 && t.failed == t.asked {
			return t.first
		}
	}
	return nil
}

func (c *cycle) beginCriteria() {
	if c.pod.Expression == nil && (c.policy == nil || c.policy.Filter == nil && c.policy.Score == nil) {
		return
	}
	if c.variables == nil {
		c.variables, c.podVariable = criteria.NewVariables(), &criteria.Pod{}
		c.variables.SetPod(c.podVariable)
	}
	c.variables.Renew()
	c.requestsVariable.requests = c.requests
	*c.podVariable = criteria.Pod{
		Namespace: c.pod.Namespace, Name: c.pod.Name, Consumer: c.pod.Consumer,
		Labels: shortOnes(c.pod.Labels), Annotations: shortOnes(c.pod.Annotations),
		Requests: &c.requestsVariable,
	}
}

// shortOnes leaves out texts of more than criteria.MaxText bytes.
func shortOnes(texts map[string]string) map[string]string {
	isLong := func(_, text string) bool { return len(text) > criteria.MaxText }
	for key, text := range texts {
		if isLong(key, text) {
			short := maps.Clone(texts)
			maps.DeleteFunc(short, isLong)
			return short
		}
	}
	return texts
}

// filterCriteria says whether the policy's filter and the pod's own keep the provider, and asks for the policy's
// score. An expression that fails filters the provider: it is not known to be what was asked for.
func (c *cycle) filterCriteria(p *provider, verdict *Verdict) bool {
	if c.policy != nil && !c.keeps(trialPolicy, c.policy.Filter, PolicyFilter, p, verdict) {
		return false
	}
	if !c.keeps(trialPod, c.pod.Expression, PodFilter, p, verdict) {
		return false
	}
	if c.weights[pluginExpression] == 0 {
		return true
	}
	if c.trials[trialScore].stopped == maxStopped {
		return c.tried(trialScore, c.trials[trialScore].last, verdict)
	}
	c.variables.SetProvider(p.variable)
	value, err := c.policy.Score.Score(c.variables)
	c.expression = points(math.Round(value * 1000))
	return c.tried(trialScore, err, verdict)
}

func (c *cycle) keeps(which int, filter *criteria.Program, reason Filter, p *provider, verdict *Verdict) bool {
	if filter == nil {
		return true
	}
	if c.trials[which].stopped == maxStopped {
		return c.tried(which, c.trials[which].last, verdict)
	}
	c.variables.SetProvider(p.variable)
	keep, err := filter.Filter(c.variables)
	if !c.tried(which, err, verdict) {
		return false
	}
	if !keep {
		verdict.Filter, verdict.VirtualNode = reason, ""
	}
	return keep
}

// tried counts an evaluation, and says whether it succeeded.
func (c *cycle) tried(which int, err error, verdict *Verdict) bool {
	t := &c.trials[which]
	t.asked++
	if err == nil {
		return true
	}
	t.failed++
	if t.first == nil {
		t.first = err
	}
	var fault *criteria.Error
	if t.stopped < maxStopped && errors.As(err, &fault) && fault.TooCostly {
		t.stopped, t.last = t.stopped+1, err
	}
	verdict.Filter, verdict.Detail, verdict.VirtualNode = Failed, err.Error(), ""
	return false
}
