package scheduler

import (
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
)

// ErrExpression is criteria.ErrExpression: an expression failed while it ran.
var ErrExpression = criteria.ErrExpression

// Decision is what State.Decide found. It owns its memory and can be given to Decide again, which overwrites
// everything, Verdicts and their Scores included; a copy shares that memory. The zero Decision is ready for use.
type Decision struct {
	// Provider is the id of the provider chosen, VirtualNode its slice; "" when nothing fits.
	Provider, VirtualNode string
	// Score is the winner's Total, 0 to 100.
	Score int
	// Verdicts has one for every provider, by id.
	Verdicts []Verdict
	// Err is not nil when an expression failed on every provider on which it was asked: it says how on the first of
	// them. It is then an ErrExpression, and names the expression. One that fails on some providers only filters
	// those; their verdicts tell.
	Err error

	cycle cycle
}

// Verdict is what a decision found of one provider: the filter it failed, or its scores.
type Verdict struct {
	// Provider is its id; VirtualNode the slice that would be taken there, "" unless Filter is Passed.
	Provider, VirtualNode string
	// Filter is the first filter it failed, Passed if none. When every slice failed one, it is that of the slice
	// that came furthest.
	Filter Filter
	// Detail adds to NotReady why, to Insufficient the resource, to Failed the expression's error.
	Detail string
	// Scores has one for every plugin with a weight, by name; nil unless Filter is Passed.
	Scores []PluginScore
	// Total is the mean of Scores by weight, 0 to 100, rounded.
	Total int

	// sum is Total unrounded, times the sum of weights: what providers are compared by.
	sum int64
	// several says that the provider has more than one slice.
	several bool
}

// PluginScore is what one plugin gave one provider.
type PluginScore struct {
	Plugin string
	// Score is 0 to 100, rounded; totals are computed from points.
	Score  int
	Weight int32
	points points
}
