package federation

import "github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"

// Scope is what a caller may see of what names pods: everything, or what belongs to a consumer, or what is in one
// namespace; with both, what is in the namespace and belongs to the consumer. The zero Scope sees no pod.
type Scope struct {
	// All makes the others meaningless.
	All                 bool
	Consumer, Namespace string
}

func (s Scope) sees(p *api.Placement) bool {
	return s.All || (s.Consumer != "" || s.Namespace != "") &&
		(s.Consumer == "" || s.Consumer == p.Consumer) && (s.Namespace == "" || s.Namespace == p.Namespace)
}

// Page is which part of a list is wanted.
type Page struct {
	// Limit is how many items; 0 means all.
	Limit int
	// Continue is that of the page before; "" for the first one.
	Continue string
}

// ProviderQuery asks for providers. What is empty does not matter.
type ProviderQuery struct {
	Page
	// Text is part of the id, the region or an attribute, in any case.
	Text, Region   string
	Ready, Enabled *bool
	// Consumer is on whose behalf the question is asked: it fills Selected.
	Consumer string
}

// PlacementQuery asks for placements, of those in its Scope. What is empty does not matter.
type PlacementQuery struct {
	Page
	Scope                         Scope
	Namespace, Provider, Consumer string
	Phase                         string
	// Text is part of "namespace/pod", or of the id of the provider or the consumer, in any case.
	Text string
	// Waiting asks for those that wait for a provider.
	Waiting bool
}
