package state

import (
	"slices"
	"time"
)

// suspicious reports whether so many providers became unreachable at once that the broker is more likely cut off than
// they are.
func (f *Federation) suspicious() bool {
	var outages []time.Time
	total, answers := 0, false
	for _, p := range f.providers {
		if !p.spec.Enabled {
			continue
		}
		total++
		switch {
		case !p.unreachableSince.IsZero():
			outages = append(outages, p.unreachableSince)
		case p.confirmed && p.last.Answered:
			answers = true
		}
	}
	if limit := f.cfg.SuspicionLimit; limit > 0 && answers {
		now, all := f.cfg.Clock.Now(), len(outages)
		outages = slices.DeleteFunc(outages, func(since time.Time) bool { return now.Sub(since) >= limit })
		total -= all - len(outages)
	}
	return suspicious(outages, total, f.cfg.SuspicionWindow)
}

// suspicious reports whether two or more providers, and more than half of those that could be reached before, became
// unreachable within one window. outages are the times at which the unreachable ones did; total counts these and the
// others, of the enabled providers. Those that were unreachable beyond the limit are in neither.
func suspicious(outages []time.Time, total int, window time.Duration) bool {
	sorted := slices.SortedFunc(slices.Values(outages), time.Time.Compare)
	for i, first := range sorted {
		together := 0
		for _, since := range sorted[i:] {
			if since.Sub(first) <= window {
				together++
			}
		}
		if reachable := total - i; together >= 2 && 2*together > reachable {
			return true
		}
	}
	return false
}
