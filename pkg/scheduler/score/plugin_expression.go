package score

import "github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"

// An expression that fails filters the provider: it is evaluated before.
var expressionPlugin = plugin{
	name: "expression", weight: 3,
	best: "scores most by the policy's expression", how: "the policy's own expression; left out if there is none",
	reads:  Expression,
	points: func(_ *Round, c *Candidate) verdict.Points { return c.Expression },
}
