package score

import (
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// plugin is one score. It has either measured or points.
type plugin struct {
	name string
	// weight is the default.
	weight int32
	// best and how are for docs/policies.md: the best provider, and how the others score.
	best, how string
	// reads are the inputs that the plugin needs: it is left out if one is missing.
	reads Input
	// measured returns the points that KPIs alone give, for a policy with this uptime window, an index of
	// uptimeWindows. They are computed when the provider changes.
	measured func(values kpi.Values, window int) verdict.Points
	// compare prepares values that depend on all candidates; nil if there are none.
	compare func(*Round)
	// points returns the points of one candidate.
	points func(*Round, *Candidate) verdict.Points
}

//go:generate go -C ../../../tools run ./scores ../pkg/scheduler/score

const (
	best    verdict.Points = 100_000
	neutral                = best / 2
)

// share returns the points of a share of 0 to 1, rounded.
func share(s float64) verdict.Points {
	if s >= 1 {
		return best
	}
	return verdict.Points(s*float64(best) + 0.5)
}

// shareOf returns the points of a KPI that is a share; false if it is unknown.
func shareOf(values kpi.Values, name string) (verdict.Points, bool) {
	value, known := values[name]
	if !known || !(value >= 0 && value <= 1) { // NaN is neither.
		return neutral, false
	}
	return share(value), true
}

// timeOf returns the points of a KPI that is a time: 100 for none, 50 for the reference or if it is unknown, less for
// more.
func timeOf(values kpi.Values, name string, reference float64) verdict.Points {
	value, known := values[name]
	if !known || !(value >= 0) {
		return neutral
	}
	return share(reference / (reference + value))
}
