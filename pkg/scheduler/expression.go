package scheduler

import (
	"errors"
	"math"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// The expressions of a decision.
const (
	trialPolicy = iota
	trialPod
	trialScore
	trialCount
)

// trial counts the providers for which an expression was evaluated, and those for which it failed; first is the first
// error.
type trial struct {
	asked, failed int
	first         error
	// stopped counts the providers for which it cost too much; last is the last such error.
	stopped int
	last    error
}

// maxStopped is the number of providers for which an expression may cost too much. After that it is not evaluated
// again, and counts as failed for the remaining providers, so that no expression delays decisions for long.
const maxStopped = 3

// failure returns the error of an expression that failed for every provider for which it was evaluated.
func (c *cycle) failure() error {
	for i := range c.trials {
		if t := &c.trials[i]; t.asked > 0 && t.failed == t.asked {
			return t.first
		}
	}
	return nil
}

// Evaluates reports whether a decision about the pod evaluates expressions, which can take milliseconds.
func Evaluates(pod *Pod, policy *Policy) bool {
	return pod.Expression != nil || policy != nil && (policy.Filter != nil || policy.Score != nil)
}

func (c *cycle) beginCriteria() {
	if !Evaluates(c.pod, c.policy) {
		return
	}
	c.variables = cel.NewVariables()
	c.readCost = c.celCost
	c.requestsVariable.requests = c.requests
	c.variables.SetPod(&cel.Pod{
		Namespace: c.pod.Namespace, Name: c.pod.Name, Consumer: c.pod.Consumer,
		Labels: values.NewTexts(c.pod.Labels), Annotations: values.NewTexts(c.pod.Annotations),
		Requests: &c.requestsVariable,
	})
}

// filterCriteria reports whether the policy's filter and the pod's own accept the provider, and evaluates the policy's
// score. An expression that fails filters the provider.
func (c *cycle) filterCriteria(p *provider, v *verdict.Verdict) bool {
	if !c.accepts(trialPolicy, c.policy.Filter, verdict.PolicyFilter, p, v) {
		return false
	}
	if !c.accepts(trialPod, c.pod.Expression, verdict.PodFilter, p, v) {
		return false
	}
	if !c.round.Reads(score.Expression) {
		return true
	}
	if c.trials[trialScore].stopped == maxStopped {
		return c.tried(trialScore, c.trials[trialScore].last, v)
	}
	c.setProvider(p)
	value, err := c.policy.Score.Score(c.variables)
	c.expression = verdict.Points(math.Round(value * 1000))
	return c.tried(trialScore, err, v)
}

func (c *cycle) accepts(which int, filter *cel.Program, reason verdict.Filter, p *provider, v *verdict.Verdict) bool {
	if filter == nil {
		return true
	}
	if c.trials[which].stopped == maxStopped {
		return c.tried(which, c.trials[which].last, v)
	}
	c.setProvider(p)
	accepted, err := filter.Filter(c.variables)
	if !c.tried(which, err, v) {
		return false
	}
	if !accepted {
		v.Filter, v.VirtualNode = reason, ""
	}
	return accepted
}

// tried counts an evaluation, and reports whether it succeeded.
func (c *cycle) tried(which int, err error, v *verdict.Verdict) bool {
	t := &c.trials[which]
	t.asked++
	if err == nil {
		return true
	}
	t.failed++
	if t.first == nil {
		t.first = err
	}
	var fault *cel.Error
	if t.stopped < maxStopped && errors.As(err, &fault) && fault.TooCostly {
		t.stopped, t.last = t.stopped+1, err
	}
	v.Filter, v.Detail, v.VirtualNode = verdict.Failed, err.Error(), ""
	return false
}

// setProvider sets the provider that expressions read. Its cost is computed only for those that read it.
func (c *cycle) setProvider(p *provider) {
	c.read = p
	c.variables.SetProvider(&p.variable, c.readCost)
}

// celCost returns the cost of the pod at the provider that expressions read.
func (c *cycle) celCost() cel.Cost {
	cost, known := c.hourly(c.read, c.requests)
	return cel.Cost{Hourly: cost.Value, Currency: cost.Currency, Known: known}
}
