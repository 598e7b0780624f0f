// Package verdict has the words of a decision: why a provider does not take a pod, how it was scored, and the sentences
// that are made of it for events, annotations and explanations.
package verdict

// Result is what a decision found.
type Result struct {
	// Provider is the id of the provider chosen, VirtualNode its slice; "" when nothing fits.
	Provider, VirtualNode string
	// Score is the winner's Total, 0 to 100.
	Score int
	// Verdicts has one for every provider, by id.
	Verdicts []Verdict
	// Beyond is why the pod is beyond the grant of its consumer, if it is; there are no verdicts then.
	Beyond string
	// Err is not nil when an expression failed on every provider on which it was asked: it is the error on the first of
	// them, a cel.ErrExpression that names the expression. An expression that fails on some providers only filters
	// those; the error is in their verdicts.
	Err error
}

// Verdict is what a decision found of one provider: the filter it failed, or its scores.
type Verdict struct {
	// Provider is its id; VirtualNode the slice that would be taken there, "" unless Filter is Passed.
	Provider, VirtualNode string
	// Several: the provider has more than one slice.
	Several bool
	// Filter is the first filter it failed, Passed if none. When every slice failed one, it is that of the slice
	// that came furthest.
	Filter Filter
	// Detail adds to NotReady why, to Insufficient the resource, to Failed the expression's error.
	Detail string
	// Scores has one for every plugin with a weight, by name; nil unless Filter is Passed.
	Scores []PluginScore
	// Total is the mean of Scores by weight, 0 to 100, rounded.
	Total int
	// Sum is Total unrounded, times the sum of weights: what providers are compared by.
	Sum int64
}

// Points are thousandths of a point of a score: scores are compared as whole numbers, which add up in any order.
type Points int32

// PluginScore is what one plugin gave one provider.
type PluginScore struct {
	Plugin string
	// Score is 0 to 100, rounded; totals are computed from Points.
	Score  int
	Weight int32
	Points Points
}
