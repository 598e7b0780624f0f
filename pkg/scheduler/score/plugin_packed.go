package score

import "github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"

var packedPlugin = plugin{
	name: "packed",
	best: "has the least free capacity", how: "100 - `free`",
	reads:  Free,
	points: func(_ *Round, c *Candidate) verdict.Points { return best - share(c.Free) },
}
