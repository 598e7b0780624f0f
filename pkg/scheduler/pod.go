package scheduler

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
)

// Pod is what a decision reads of a pod.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	// Consumer is the id of the cluster that the pod came from; "" is this one. That cluster is never chosen.
	Consumer string
	// Selections are its consumer's: a provider must be in all of them.
	Selections          []Selection
	Labels, Annotations map[string]string
	// App is shared by the pods of one application (plugins spread and close); "" is none.
	App string
	// Requests are what PodRequests returns.
	Requests Resources
	// VolumesAt is the VirtualNode where its volumes are bound; "" is nowhere yet.
	VolumesAt string
	// Refused has, by VirtualNode, until when the pod is not to be sent there again.
	Refused map[string]time.Time
	// Current is the VirtualNode that the pod is to be moved away from; "" is none.
	Current string
	// Expression is the pod's own filter; nil is none.
	Expression *criteria.Program
}

// Selection is a consumer's choice of providers: those with the ids, or without Only all others.
type Selection struct {
	Only bool
	IDs  sets.Set[string]
}

// selects says whether the pod's consumer selected a provider.
func (p *Pod) selects(id string) bool {
	for i := range p.Selections {
		if s := &p.Selections[i]; s.IDs.Has(id) != s.Only {
			return false
		}
	}
	return true
}
