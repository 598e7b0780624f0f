package ledger

import (
	"maps"
	"slices"
	"sort"
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

// Latest returns the prices of all providers that were observed last, and when.
func (p *Prices) Latest() map[string]PriceChange {
	latest := make(map[string]PriceChange, len(p.of))
	for provider, all := range p.of {
		latest[provider] = PriceChange{At: all[len(all)-1].at, Lists: all[len(all)-1].lists}
	}
	return latest
}

// PriceChange is the prices of a provider from a time on.
type PriceChange struct {
	At    time.Time
	Lists price.Lists
}

// Differs reports whether other prices are in the lists.
func (c *PriceChange) Differs(lists price.Lists) bool {
	return !slices.EqualFunc(c.Lists, lists, func(x, y price.List) bool {
		return x.Currency == y.Currency && x.From.Equal(y.From) && maps.Equal(x.PerHour, y.PerHour)
	})
}

// at returns the prices of a provider at a time, nil if they are unknown, and the time until which they apply, at most to.
// The prices that were observed first also apply to the time before.
func (p *Prices) at(provider string, t, to time.Time) (*price.List, time.Time) {
	all := p.of[provider]
	if len(all) == 0 {
		return nil, to
	}
	later := sort.Search(len(all), func(i int) bool { return all[i].at.After(t) })
	i := max(later-1, 0)
	if i+1 < len(all) {
		to = earlier(to, all[i+1].at)
	}
	if next, ok := all[i].lists.Next(t); ok {
		to = earlier(to, next)
	}
	return all[i].lists.At(t), to
}
