package kpi

import (
	"slices"
	"time"
)

// Samples keeps the last durations measured, and computes their quantiles.
type Samples struct {
	ring []time.Duration
	next int
	size int
}

// newSamples keeps the last size durations.
func newSamples(size int) *Samples { return &Samples{size: size} }

// Add keeps one duration, in place of the oldest when there are size of them.
func (s *Samples) Add(d time.Duration) {
	if len(s.ring) < s.size {
		s.ring = append(s.ring, d)
		return
	}
	s.ring[s.next] = d
	s.next = (s.next + 1) % s.size
}

// Len returns the number of durations.
func (s *Samples) Len() int { return len(s.ring) }

// Quantile returns the smallest duration that at least the share q (0 to 1) of them does not exceed; false if there is
// none.
func (s *Samples) Quantile(q float64) (time.Duration, bool) {
	if len(s.ring) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(s.ring))
	index := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(index, 0), len(sorted)-1)], true
}
