package score

import (
	"maps"
	"math"
	"slices"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

var pricePlugin = plugin{
	name: "price",
	best: "is the cheapest for the pod",
	how: "by the price of an hour of the pod's requests: 50 for twice the lowest price among the providers that fit, and for an " +
		"unknown price or another currency than most of them have. A pod that requests no CPU, or no memory, is compared with " +
		"100m, or 200Mi, as by kube-scheduler",
	reads: Price,
	compare: func(r *Round) {
		r.currency = r.commonCurrency()
		r.cheapest = math.Inf(1)
		for i := range r.candidates {
			if c := &r.candidates[i]; c.Currency == r.currency && c.Price < r.cheapest {
				r.cheapest = c.Price
			}
		}
	},
	points: func(r *Round, c *Candidate) verdict.Points {
		switch {
		case math.IsNaN(c.Price) || c.Currency != r.currency:
			return neutral
		case c.Price == r.cheapest:
			return best
		}
		return share(r.cheapest / c.Price)
	},
}

// commonCurrency returns the currency of the most candidates with a price; of equals, the first by name.
func (r *Round) commonCurrency() string {
	count := map[string]int{}
	for i := range r.candidates {
		if c := &r.candidates[i]; !math.IsNaN(c.Price) {
			count[c.Currency]++
		}
	}
	common, most := "", 0
	for _, currency := range slices.Sorted(maps.Keys(count)) {
		if count[currency] > most {
			common, most = currency, count[currency]
		}
	}
	return common
}
