// Package verdict has the texts of a decision: why a provider does not take a pod, how it was scored, and the sentences
// made of them for events, annotations and explanations.
package verdict

import "time"

// Result is the result of a decision.
type Result struct {
	// Provider is the id of the provider chosen, VirtualNode its slice; "" when nothing fits.
	Provider, VirtualNode string
	// Score is the winner's Total, 0 to 100.
	Score int
	// Verdicts has one for every provider, by id.
	Verdicts []Verdict
	// Beyond is the reason why the pod exceeds its consumer's grant, "" if it does not; there are no verdicts then.
	Beyond string
	// Held is the reason why a pod that fits is held back, "" if it is not: consumers with smaller shares go first.
	Held string
	// HeldFor is how long it has been held back.
	HeldFor time.Duration
	// Err is not nil when an expression failed on every provider on which it was asked: it is the error on the first of
	// them, a cel.ErrExpression that names the expression. An expression that fails on some providers only filters
	// those; the error is in their verdicts.
	Err error
}

// Verdict is the result for one provider: the filter it failed, or its scores.
type Verdict struct {
	// Provider is its id; VirtualNode the slice chosen there, "" unless Filter is Passed.
	Provider, VirtualNode string
	// Several: the provider has more than one slice.
	Several bool
	// Filter is the first filter it failed, Passed if none. When every slice failed one, it is the filter of the slice
	// that passed the most.
	Filter Filter
	// Detail adds the cause to NotReady and NotOffloaded, the resource to Insufficient, and the expression's error to Failed. It is the
	// reason itself with NodeAffinity, TopologySpread, PodAffinity, VolumeElsewhere, NoStorageClass and TooCostly.
	Detail string
	// Scores has one for every plugin with a weight, by name; nil unless Filter is Passed.
	Scores []PluginScore
	// Total is the mean of Scores by weight, 0 to 100, rounded.
	Total int
	// Sum is Total unrounded, times the sum of weights: providers are compared by it.
	Sum int64
}

// Points are thousandths of a point of a score: scores are compared as whole numbers, which add up in any order.
type Points int32

// PluginScore is the score of one plugin for one provider.
type PluginScore struct {
	Plugin string
	// Score is 0 to 100, rounded; totals are computed from Points.
	Score  int
	Weight int32
	Points Points
}
