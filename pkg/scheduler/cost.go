package scheduler

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// The requests with which the costs of a pod without them are compared, as in kube-scheduler (DefaultMilliCPURequest and
// DefaultMemoryRequest of its package util): otherwise all providers would cost the same.
const (
	comparedCPU    = 100
	comparedMemory = 200 << 20
)

// hourly returns the cost of an hour of the requests at the provider; false if it is unknown.
func (c *cycle) hourly(p *provider, requests []amounts.Request) (price.Amount, bool) {
	list := p.Prices.At(c.now)
	if list == nil {
		return price.Amount{}, false
	}
	cost := price.Amount{Currency: list.Currency}
	for i := range requests {
		cost.Value += list.Resource(corev1.ResourceName(requests[i].Name), requests[i].Amount)
	}
	return cost, true
}

// comparedCost returns the cost by which the provider is compared with others; NaN if it is unknown.
func (c *cycle) comparedCost(p *provider) price.Amount {
	if c.compared == nil {
		c.compared = slices.Clone(c.requests)
		for _, r := range []amounts.Request{
			{Number: amounts.CPU, Name: string(corev1.ResourceCPU), Amount: comparedCPU},
			{Number: amounts.Memory, Name: string(corev1.ResourceMemory), Amount: comparedMemory},
		} {
			if !slices.ContainsFunc(c.requests, func(of amounts.Request) bool { return of.Number == r.Number }) {
				c.compared = append(c.compared, r)
			}
		}
	}
	cost, known := c.hourly(p, c.compared)
	if !known {
		return price.Amount{Value: math.NaN()}
	}
	return cost
}

// filterCost reports whether an hour of the pod costs no more at the provider than its policy allows.
func (c *cycle) filterCost(p *provider, v *verdict.Verdict) bool {
	limit := c.policy.MaxHourlyCost
	if limit == nil {
		return true
	}
	switch cost, known := c.hourly(p, c.requests); {
	case !known:
		v.Detail = "price unknown"
	case cost.Currency != limit.Currency:
		v.Detail = "price in another currency than " + named(limit.Currency)
	case cost.Value > limit.Value*(1+costTolerance):
		v.Detail = "costs " + cost.String() + "/h, more than " + price.Format(limit.Value)
	default:
		return true
	}
	v.Filter = verdict.TooCostly
	return false
}

// costTolerance is the relative error of a sum of products of floating-point numbers, which must not filter a provider
// that costs exactly the limit.
const costTolerance = 1e-12

func named(currency string) string {
	if currency == "" {
		return "the limit, which has none"
	}
	return currency
}
