package accounting

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
)

// maxCurrencies is the number of currencies of a provider that costs are counted in. A provider may advertise others with
// each second.
const maxCurrencies = 10

// usage counts, for the metrics, the charges of the ledger. A counter cannot be set back: a pod that is found to have
// ended before the last write was counted until then, and a changed price counts from the write before it was seen.
type usage struct {
	metrics *Metrics
	// since is when the ledger was written last by another leader, which has counted until then.
	since time.Time
	// until is when each pod that holds resources was counted last.
	until map[types.UID]time.Time
	// currencies has the currencies in which each provider had prices.
	currencies map[string]map[string]bool
}

func newUsage(metrics *Metrics, since time.Time) *usage {
	return &usage{metrics: metrics, since: since, until: map[types.UID]time.Time{}, currencies: map[string]map[string]bool{}}
}

// count counts changed and open segments until now. Each pod's changed segments are in the order of the changes.
func (u *usage) count(now time.Time, changed, open []ledger.Segment, latest map[string]ledger.PriceChange) {
	if u.metrics == nil {
		return
	}
	prices := ledger.NewPrices()
	for provider, of := range latest {
		prices.Observe(provider, of.At, of.Lists)
	}
	holds := make(map[types.UID]bool, len(open))
	for i := range changed {
		if s := &changed[i]; !s.Stop.IsZero() {
			u.add(s, s.Stop, prices)
		}
	}
	for i := range open {
		holds[open[i].UID] = true
		u.add(&open[i], now, prices)
	}
	for uid := range u.until {
		if !holds[uid] {
			delete(u.until, uid)
		}
	}
}

func (u *usage) add(s *ledger.Segment, to time.Time, prices *ledger.Prices) {
	from, counted := u.until[s.UID]
	if !counted {
		from = u.since
	}
	if s.Start.After(from) {
		from = s.Start
	}
	if !from.Before(to) {
		return
	}
	prices.Charges(s, from, to, func(c *ledger.Charge) {
		if c.Quantity > 0 {
			u.metrics.resources.WithLabelValues(c.Account(), c.Provider, string(c.Resource)).Add(c.Quantity * time.Hour.Seconds())
		}
		if c.Cost > 0 && u.admits(c.Provider, c.Price.Currency) {
			u.metrics.cost.WithLabelValues(c.Account(), c.Provider, c.Price.Currency).Add(c.Cost)
		}
	})
	u.until[s.UID] = to
}

func (u *usage) admits(provider, currency string) bool {
	known := u.currencies[provider]
	if known == nil {
		known = map[string]bool{}
		u.currencies[provider] = known
	}
	if !known[currency] && len(known) < maxCurrencies {
		known[currency] = true
	}
	return known[currency]
}
