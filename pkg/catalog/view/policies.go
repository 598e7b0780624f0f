package view

import (
	"slices"
	"strings"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/orchestrator"
)

// policies are the PlacementPolicies, by name, and the selections of consumers among them. Items are never changed.
type policies struct {
	byName *btree.BTreeG[*api.Policy]
	// selections are by consumer. A consumer without one has every provider.
	selections map[string]*selected
}

func newPolicies() *policies {
	return &policies{
		byName:     btree.NewG(degree, func(x, y *api.Policy) bool { return x.Name < y.Name }),
		selections: map[string]*selected{},
	}
}

// selected is the selection of a consumer, as package orchestrator reads it. A nil one has every provider.
type selected struct {
	// unknown means that the policy of that name is not the consumer's selection.
	unknown, only bool
	providers     sets.Set[string]
}

// has returns nil if it is unknown.
func (s *selected) has(provider string) *bool {
	if s != nil && s.unknown {
		return nil
	}
	has := s == nil || s.providers.Has(provider) == s.only
	return &has
}

// set stores a policy. It returns the consumer whose selection the policy is, "" if it is none, and the previous
// selection.
func (p *policies) set(policy *v1alpha1.PlacementPolicy) (consumer string, before *selected) {
	shown := api.PolicyOf(policy)
	p.byName.ReplaceOrInsert(&shown)
	consumer, ok := strings.CutPrefix(policy.Name, orchestrator.PolicyName(""))
	if !ok {
		return "", nil
	}
	before = p.selections[consumer]
	fresh := &selected{unknown: true}
	if s := policy.Spec.Selection; s != nil && slices.Equal(policy.Spec.Consumers, []string{consumer}) {
		fresh = &selected{only: s.Mode == v1alpha1.SelectOnly, providers: sets.New(s.Providers...)}
	}
	p.selections[consumer] = fresh
	return consumer, before
}

// remove removes a policy. It returns the same as set.
func (p *policies) remove(name string) (consumer string, before *selected) {
	p.byName.Delete(&api.Policy{Name: name})
	consumer, ok := strings.CutPrefix(name, orchestrator.PolicyName(""))
	if !ok {
		return "", nil
	}
	before = p.selections[consumer]
	delete(p.selections, consumer)
	return consumer, before
}

// page returns up to limit policies (all if 0) after a name, the number in the scope, and whether there are more.
func (p *policies) page(s Scope, after string, limit int) (items []*api.Policy, total int, more bool) {
	p.byName.Ascend(func(policy *api.Policy) bool {
		if !s.All && !concerns(policy, s.Consumer) {
			return true
		}
		total++
		switch {
		case policy.Name <= after:
		case limit > 0 && len(items) == limit:
			more = true
		default:
			items = append(items, policy)
		}
		return true
	})
	return items, total, more
}

// concerns reports whether a policy is for a consumer; "" is no consumer.
func concerns(policy *api.Policy, consumer string) bool {
	return consumer != "" && (len(policy.Consumers) == 0 || slices.Contains(policy.Consumers, consumer))
}
