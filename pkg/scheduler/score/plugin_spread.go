package score

import (
	"math"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// The domain with the fewest pods gets 100; the others less, the more uneven the pods are spread. It is
// kube-scheduler's formula (plugin PodTopologySpread).
var spreadPlugin = plugin{
	name: "spread", weight: 2,
	best: "has the fewest pods of the pod's application",
	how: "counted by provider, or by the policy's topology key: an attribute of providers, else a label; a provider " +
		"without it gets 50",
	reads: App,
	compare: func(r *Round) {
		r.fullest, r.emptiest = 0, math.MaxInt
		for i := range r.candidates {
			if in := r.candidates[i].DomainPods; in != NoDomain {
				r.fullest, r.emptiest = max(r.fullest, in), min(r.emptiest, in)
			}
		}
	},
	points: func(r *Round, c *Candidate) verdict.Points {
		switch {
		case c.DomainPods == NoDomain:
			return neutral
		case r.fullest == 0:
			return best
		}
		return share(float64(r.fullest+r.emptiest-c.DomainPods) / float64(r.fullest))
	},
}
