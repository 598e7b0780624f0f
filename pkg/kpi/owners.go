package kpi

import (
	"cmp"
	"slices"
	"time"
)

const (
	// enoughForVote is the number of starts and failures, or of measured start times, from which an owner's own
	// quantiles and rate count.
	enoughForVote = 3
	// maxOwners bounds the owners that are counted separately; the others count as one.
	maxOwners = 50
	// others is the name of that one, and of the counts from before a restart.
	others = ""
)

// owner has the measurements of the pods of one consumer, or of one namespace of the broker's cluster.
type owner struct {
	starts          *Samples
	started, failed int64
}

// owners are the owners at a provider by name. Each counts once, regardless of its number of pods: a KPI is the median
// of the owners' values, with an even number the better one of the two in the middle. So a tenant whose pods fail by
// its own fault, or a provider that is also a consumer, does not determine a KPI alone, once two others have pods
// there.
type owners map[string]*owner

// of returns the record of an owner.
func (o owners) of(name string) *owner {
	if o[name] == nil && len(o) >= maxOwners {
		name = others
	}
	if o[name] == nil {
		o[name] = &owner{starts: newSamples(startSamples)}
	}
	return o[name]
}

// counts returns how many pods started and failed: their sum is the actual total, split in the proportion of the median
// failure rate.
func (o owners) counts() (started, failed int64) {
	var rates []float64
	for name, of := range o {
		started, failed = started+of.started, failed+of.failed
		if rate, known := failureRate(of.started, of.failed); known && name != others && of.started+of.failed >= enoughForVote {
			rates = append(rates, rate)
		}
	}
	if rate, voted := lowerMedian(rates); voted {
		all := started + failed
		failed = int64(rate*float64(all) + 0.5)
		started = all - failed
	}
	return started, failed
}

// starts returns a quantile of the start times, and their number.
func (o owners) starts(q float64) (took time.Duration, samples int) {
	var votes []time.Duration
	all := newSamples(len(o) * startSamples)
	for _, of := range o {
		for _, sample := range of.starts.ring {
			all.Add(sample)
		}
		if of.starts.Len() >= enoughForVote {
			vote, _ := of.starts.Quantile(q)
			votes = append(votes, vote)
		}
	}
	if vote, voted := lowerMedian(votes); voted {
		return vote, all.Len()
	}
	took, _ = all.Quantile(q)
	return took, all.Len()
}

// lowerMedian returns the median of two or more votes, the smaller one of the two in the middle; false if there are
// fewer.
func lowerMedian[T cmp.Ordered](votes []T) (median T, voted bool) {
	if len(votes) < 2 {
		return median, false
	}
	slices.Sort(votes)
	return votes[(len(votes)-1)/2], true
}

// halve halves all counts, and drops owners whose counts are 0.
func (o owners) halve() {
	for name, of := range o {
		if of.started, of.failed = of.started/2, of.failed/2; of.started+of.failed == 0 {
			delete(o, name)
		}
	}
}
