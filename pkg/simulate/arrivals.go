package simulate

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The names of distributions.
const (
	fixed       = "fixed"
	exponential = "exponential"
	lognormal   = "lognormal"
)

// at returns the time below which a share of the distribution is, from 0 to 1 (excluded).
func (d *Distribution) at(share float64) time.Duration {
	mean := d.Mean.Seconds()
	switch d.Distribution {
	case exponential:
		mean *= -math.Log1p(-share)
	case lognormal:
		sigma := d.Sigma
		if sigma == 0 {
			sigma = 1
		}
		mean *= math.Exp(sigma*math.Sqrt2*math.Erfinv(2*max(share, 1e-12)-1) - sigma*sigma/2)
	}
	return time.Duration(math.Round(min(mean, maxDuration.Seconds()*10)*1000)) * time.Millisecond
}

// stream has the random numbers of one workload. No decision changes them: the pods of two scenarios with the same
// seed, consumers and workloads are the same.
type stream struct {
	random  *rand.Rand
	of      *Arrivals
	highest float64
}

func newStream(seed uint64, consumer, workload string, of *Arrivals) *stream {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(consumer + "/" + workload))
	//nolint:gosec // These numbers protect nothing, and must be the same each time.
	s := &stream{random: rand.New(rand.NewPCG(seed, hash.Sum64())), of: of, highest: of.PerHour}
	if len(of.Profile) > 0 {
		s.highest *= slices.Max(of.Profile)
	}
	return s
}

// next returns the first arrival after a time; false if there is none before end. It thins a process of the highest
// rate.
func (s *stream) next(after, end time.Time) (time.Time, bool) {
	if s.highest <= 0 {
		return end, false
	}
	for {
		hours := min(s.random.ExpFloat64()/s.highest, 2*maxDuration.Hours()) // More overflows a Duration.
		after = after.Add(time.Duration(hours * float64(time.Hour)).Round(time.Millisecond))
		if !after.Before(end) {
			return end, false
		}
		rate := s.of.PerHour
		if len(s.of.Profile) > 0 {
			rate *= s.of.Profile[after.UTC().Hour()]
		}
		if s.random.Float64()*s.highest < rate {
			return after, true
		}
	}
}

// orDefault returns a duration that may not be set.
func orDefault(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}
