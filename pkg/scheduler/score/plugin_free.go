package score

import "github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"

var freePlugin = plugin{
	name: "free", weight: 3,
	best: "has the most free capacity",
	how: "share of what its slices grant that stays free with the pod: mean of cpu, memory, and the extended resources " +
		"that the pod requests",
	reads:  Free,
	points: func(_ *Round, c *Candidate) verdict.Points { return share(c.Free) },
}
