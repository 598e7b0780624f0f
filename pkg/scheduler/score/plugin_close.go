package score

import "github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"

var closePlugin = plugin{
	name: "close",
	best: "has the most pods of the pod's application", how: "50 for half as many as the provider that has the most",
	reads: App,
	compare: func(r *Round) {
		r.mostAppPods = 1
		for i := range r.candidates {
			r.mostAppPods = max(r.mostAppPods, r.candidates[i].AppPods)
		}
	},
	points: func(r *Round, c *Candidate) verdict.Points { return share(float64(c.AppPods) / float64(r.mostAppPods)) },
}
