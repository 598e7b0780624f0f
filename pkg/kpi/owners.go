package kpi

import (
	"cmp"
	"slices"
	"time"
)

const (
	// enoughForVote is how many starts and failures, or times of starts, an owner must have for its own quantiles and rate to count.
	enoughForVote = 3
	// maxOwners bounds how many are told apart; the others are one.
	maxOwners = 50
	// others is the name of these, and of what was counted before a restart.
	others = ""
)

// owner is what was measured of the pods of one consumer, or of one namespace of the broker's cluster.
type owner struct {
	starts          *Samples
	started, failed int64
}

// owners are those of a provider by name. Each counts once, however many pods it has: a KPI is the median of theirs, of an even number
// the better one of the two in the middle. So a tenant whose pods fail by its own fault, or a provider that is a consumer, too, does not
// decide about a KPI alone, once two others have pods there.
type owners map[string]*owner

// of returns the record of an owner.
func (o owners) of(name string) *owner {
	if o[name] == nil && len(o) >= maxOwners {
		name = others
	}
	if o[name] == nil {
		o[name] = &owner{starts: NewSamples(startSamples)}
	}
	return o[name]
}

// counts returns how many pods started and failed, together so many as there were, in the proportion that is the median.
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

// starts returns a quantile of the times of starts, and of how many there are.
func (o owners) starts(q float64) (took time.Duration, samples int) {
	var votes []time.Duration
	all := NewSamples(len(o) * startSamples)
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

// lowerMedian returns the median of two or more votes, the smaller one of the two in the middle; false if there are fewer.
func lowerMedian[T cmp.Ordered](votes []T) (median T, voted bool) {
	if len(votes) < 2 {
		return median, false
	}
	slices.Sort(votes)
	return votes[(len(votes)-1)/2], true
}

// halve has all counts count half, and forgets owners of which nothing counts any more.
func (o owners) halve() {
	for name, of := range o {
		if of.started, of.failed = of.started/2, of.failed/2; of.started+of.failed == 0 {
			delete(o, name)
		}
	}
}
