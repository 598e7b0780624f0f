package score

import "github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"

var preferredPlugin = plugin{
	name: "preferred", weight: 3,
	best:   "meets the most of the pod's preferred affinities and spreads",
	how:    "share of their weights that is met; left out if the pod has none",
	reads:  Preferred,
	points: func(_ *Round, c *Candidate) verdict.Points { return share(c.Preferred) },
}
