package score

import (
	"math"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

var pricePlugin = plugin{
	name: "price",
	best: "is the cheapest",
	how: "by the attribute `price`, a decimal number in a unit that all providers share: 50 for twice the lowest price " +
		"among those that fit",
	compare: func(r *Round) {
		r.cheapest = math.Inf(1)
		for i := range r.candidates {
			if price := r.candidates[i].Price; price < r.cheapest {
				r.cheapest = price
			}
		}
	},
	points: func(r *Round, c *Candidate) verdict.Points {
		switch {
		case math.IsNaN(c.Price):
			return neutral
		case c.Price == r.cheapest:
			return best
		}
		return share(r.cheapest / c.Price)
	},
}
