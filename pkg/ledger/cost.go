package ledger

import (
	"reflect"
	"slices"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/price"
)

// Prices are the prices of providers over time, as the broker observed them: a price that is changed later for a time
// that has passed changes no cost.
type Prices struct{ of map[string][]observed }

type observed struct {
	at    time.Time
	lists price.Lists
}

// NewPrices returns none.
func NewPrices() *Prices { return &Prices{of: map[string][]observed{}} }

// Observe notes the prices that a provider has from a time on. Times must not decrease.
func (p *Prices) Observe(provider string, at time.Time, lists price.Lists) {
	p.of[provider] = append(p.of[provider], observed{at, lists})
}

// Differs reports whether a provider had other prices when they were observed last.
func (p *Prices) Differs(provider string, lists price.Lists) bool {
	all := p.of[provider]
	if len(all) == 0 {
		return len(lists) > 0
	}
	return !same(all[len(all)-1].lists, lists)
}

func same(a, b price.Lists) bool {
	return slices.EqualFunc(a, b, func(x, y price.List) bool {
		return x.Currency == y.Currency && x.From.Equal(y.From) && reflect.DeepEqual(x.PerHour, y.PerHour)
	})
}

// at returns the prices of a provider at a time, nil if they are unknown, and the time until which they apply, at most to.
// The prices that were observed first also apply to the time before.
func (p *Prices) at(provider string, t, to time.Time) (*price.List, time.Time) {
	all := p.of[provider]
	if len(all) == 0 {
		return nil, to
	}
	i := 0
	for i+1 < len(all) && !all[i+1].at.After(t) {
		i++
	}
	if i+1 < len(all) {
		to = earlier(to, all[i+1].at)
	}
	if next, ok := all[i].lists.Next(t); ok {
		to = earlier(to, next)
	}
	return all[i].lists.At(t), to
}
