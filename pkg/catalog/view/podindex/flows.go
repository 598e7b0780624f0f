package podindex

import (
	"cmp"
	"slices"
	"strings"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

func (x *Index) count(p *Pod, change int) {
	if p.terminal {
		return
	}
	consumer, provider := p.Shown.Consumer, p.Shown.Provider
	if x.flows[consumer] == nil {
		x.flows[consumer] = map[string]int{}
	}
	x.flows[consumer][provider] += change
	if x.flows[consumer][provider] == 0 {
		delete(x.flows[consumer], provider)
	}
	if len(x.flows[consumer]) == 0 {
		delete(x.flows, consumer)
	}
}

// Flows counts all pods that are not terminal, by consumer and provider.
func (x *Index) Flows() []api.Flow {
	flows := []api.Flow{}
	for consumer, byProvider := range x.flows {
		flows = appendFlows(flows, consumer, byProvider)
	}
	return sorted(flows)
}

// ConsumerFlows counts the pods of one consumer.
func (x *Index) ConsumerFlows(consumer string) []api.Flow {
	return sorted(appendFlows([]api.Flow{}, consumer, x.flows[consumer]))
}

// NamespaceFlows counts the pods in a namespace. They all have one consumer.
func (x *Index) NamespaceFlows(namespace string) []api.Flow {
	byProvider, consumer := map[string]int{}, ""
	for _, p := range x.Namespace(namespace) {
		if consumer = p.Shown.Consumer; !p.terminal {
			byProvider[p.Shown.Provider]++
		}
	}
	return sorted(appendFlows([]api.Flow{}, consumer, byProvider))
}

func appendFlows(flows []api.Flow, consumer string, byProvider map[string]int) []api.Flow {
	for provider, pods := range byProvider {
		flows = append(flows, api.Flow{Consumer: consumer, Provider: provider, Pods: pods})
	}
	return flows
}

func sorted(flows []api.Flow) []api.Flow {
	slices.SortFunc(flows, func(x, y api.Flow) int {
		return cmp.Or(strings.Compare(x.Consumer, y.Consumer), strings.Compare(x.Provider, y.Provider))
	})
	return flows
}
