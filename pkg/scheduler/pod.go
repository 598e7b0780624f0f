package scheduler

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
)

// Pod has the data of a pod that a decision reads.
type Pod struct {
	UID types.UID
	// Use is the use for which a decision counts the requests (Holder); it is zero for the pod's own.
	Use             Use
	Namespace, Name string
	// Consumer is the id of the cluster that the pod came from; "" is this one. That cluster is never chosen.
	Consumer string
	// Account is the account whose grant limits the pod if it is new: First means that it was never assigned before, or
	// had to leave its provider because it exceeded that grant (Reclaimed).
	Account          Account
	First, Reclaimed bool
	// Owner is the consumer or the namespace that the pod is counted to.
	Owner string
	// Selections are its consumer's: a provider must be in all of them.
	Selections          []Selection
	Labels, Annotations map[string]string
	// App is shared by the pods of one application (plugins spread and close); "" is none.
	App string
	// Requests are the result of PodRequests.
	Requests resources.Amounts
	// Constraints are the pod's own; nil is none. Peer is the pod as the constraints of others see it.
	Constraints *constraints.Constraints
	Peer        *constraints.Peer
	// Volumes are the volumes of its claims; nil is none.
	Volumes *Volumes
	// Refused has, by VirtualNode, the end of the pod's back-off there; the key "" is for all VirtualNodes without an
	// entry.
	Refused map[string]time.Time
	// Expression is the pod's own filter; nil is none.
	Expression *cel.Program
}

// Selection is a consumer's choice of providers: those with the ids, or without Only all others.
type Selection struct {
	Only bool
	IDs  sets.Set[string]
}

func (p *Pod) holder() Holder { return Holder{UID: p.UID, Use: p.Use} }

// selects reports whether the pod's consumer selected a provider.
func (p *Pod) selects(id string) bool {
	for i := range p.Selections {
		if s := &p.Selections[i]; s.IDs.Has(id) != s.Only {
			return false
		}
	}
	return true
}

// refusedUntil returns the end of the pod's back-off at a VirtualNode.
func (p *Pod) refusedUntil(virtualNode string) time.Time {
	if until, named := p.Refused[virtualNode]; named {
		return until
	}
	return p.Refused[""]
}

// TopologyProvider is the topology key in which every provider cluster is a domain of its own.
const TopologyProvider = "provider"

// Policy restricts the providers of a pod, and sets the weights of the scores. The zero Policy, and nil, allow every
// provider and have the default weights.
type Policy struct {
	Name string
	// Named are the ids of the providers that may be used; nil is all, empty is none.
	Named sets.Set[string]
	// Filter is true for the providers to use; nil is all. It is made by a cel.Cache.
	Filter *cel.Program
	// Score is the plugin expression's score; nil leaves that plugin out. It is made by a cel.Cache.
	Score *cel.Program
	// MaxHourlyCost is the most that an hour of the pod may cost at a provider; nil is no limit.
	MaxHourlyCost *price.Amount
	// Weights in any order; nil is the default ones. Weights that score.ValidateWeights rejects are left out.
	Weights []score.Weight
	// TopologyKey is for the plugin spread: which providers are one failure domain. It is the key of a provider's
	// attribute, else of its label; "" is TopologyProvider.
	TopologyKey string
	// UptimeWindow is the time over which the plugin uptime looks back, one of score.UptimeWindows; "" is 24h. When the
	// uptime over it is unknown, the next shorter window counts.
	UptimeWindow string
}
