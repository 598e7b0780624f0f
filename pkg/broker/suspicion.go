package broker

import (
	"slices"
	"time"
)

// suspicious says whether so many providers vanished at once that the broker is more likely cut off than they are:
// two or more, and more than half of those that were there, within one window. outages are when each unreachable
// provider was lost; total counts the reachable ones too.
func suspicious(outages []time.Time, total int, window time.Duration) bool {
	sorted := slices.SortedFunc(slices.Values(outages), time.Time.Compare)
	for i, first := range sorted {
		vanished := 0
		for _, lost := range sorted[i:] {
			if lost.Sub(first) <= window {
				vanished++
			}
		}
		if there := total - i; vanished >= 2 && 2*vanished > there {
			return true
		}
	}
	return false
}
