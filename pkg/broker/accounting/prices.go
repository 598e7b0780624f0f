package accounting

import (
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
)

// maxPriceChanges is the number of changes of a provider's prices that are recorded in an hour. A provider may advertise
// others with each second.
const maxPriceChanges = 60

// knownPrices are the prices that were recorded last.
type knownPrices struct {
	latest map[string]ledger.PriceChange
	// inHour counts the changes of each provider in the hour that began at hour.
	hour   time.Time
	inHour map[string]int
}

// changes returns the prices to record. Their times are later than earlier ones, also if the clock is set back.
func (k *knownPrices) changes(now time.Time, present map[string]price.Lists) map[string]ledger.PriceChange {
	changes := map[string]ledger.PriceChange{}
	if hour := now.Truncate(time.Hour); !hour.Equal(k.hour) {
		k.hour = hour
		clear(k.inHour)
	}
	for provider, lists := range present {
		last, known := k.latest[provider]
		if known && !last.Differs(lists) || k.inHour[provider] >= maxPriceChanges {
			continue
		}
		at := now
		if known && !at.After(last.At) {
			at = last.At.Add(time.Millisecond)
		}
		changes[provider] = ledger.PriceChange{At: at, Lists: lists}
	}
	return changes
}

func (k *knownPrices) written(changes map[string]ledger.PriceChange) {
	for provider, change := range changes {
		k.latest[provider] = change
		k.inHour[provider]++
	}
}
