package federation

import (
	"slices"
	"strings"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/selection"
)

// policies are the PlacementPolicies, by name, and what consumers selected by them. What is in them is never changed.
type policies struct {
	byName *btree.BTreeG[*api.Policy]
	// chosen is absent for a consumer that never selected anything: it has them all.
	chosen map[string]*choice
}

func newPolicies() *policies {
	return &policies{
		byName: btree.NewG(degree, func(x, y *api.Policy) bool { return x.Name < y.Name }),
		chosen: map[string]*choice{},
	}
}

// choice is what a consumer selected, as package selection reads it. The nil choice has every provider.
type choice struct {
	// unknown: the policy that should say so is something else.
	unknown, only bool
	providers     sets.Set[string]
}

// has is nil if it is not known.
func (c *choice) has(provider string) *bool {
	if c != nil && c.unknown {
		return nil
	}
	has := c == nil || c.providers.Has(provider) == c.only
	return &has
}

// set notes a policy. It returns the consumer whose selection it is, and what that was before; "" if it is none's.
func (p *policies) set(policy *v1alpha1.PlacementPolicy) (consumer string, before *choice) {
	p.byName.ReplaceOrInsert(policyOf(policy))
	consumer, ok := strings.CutPrefix(policy.Name, selection.PolicyName(""))
	if !ok {
		return "", nil
	}
	before = p.chosen[consumer]
	fresh := &choice{unknown: true}
	if s := policy.Spec.Selection; s != nil && slices.Equal(policy.Spec.Consumers, []string{consumer}) {
		fresh = &choice{only: s.Mode == v1alpha1.SelectOnly, providers: sets.New(s.Providers...)}
	}
	p.chosen[consumer] = fresh
	return consumer, before
}

// remove forgets a policy. It returns what set does.
func (p *policies) remove(name string) (consumer string, before *choice) {
	p.byName.Delete(&api.Policy{Name: name})
	consumer, ok := strings.CutPrefix(name, selection.PolicyName(""))
	if !ok {
		return "", nil
	}
	before = p.chosen[consumer]
	delete(p.chosen, consumer)
	return consumer, before
}

// page returns up to limit policies (all if 0) after a name, how many there are in the scope, and whether there are more.
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

// concerns says whether a policy is for a consumer, "" being none.
func concerns(policy *api.Policy, consumer string) bool {
	return consumer != "" && (len(policy.Consumers) == 0 || slices.Contains(policy.Consumers, consumer))
}

// policyOf shows a policy to those who may see all of it.
func policyOf(p *v1alpha1.PlacementPolicy) *api.Policy {
	shown := &api.Policy{
		Name: p.Name, Priority: p.Spec.Priority, Filter: p.Spec.Filter, Score: p.Spec.Score, Pods: p.Status.Pods,
		Consumers: slices.Clone(p.Spec.Consumers), Providers: slices.Clone(p.Spec.Providers),
		Conditions: conditionsOf(p.Status.Conditions),
	}
	for _, w := range p.Spec.Weights {
		shown.Weights = append(shown.Weights, api.Weight{Name: w.Name, Weight: w.Weight})
	}
	if s := p.Spec.Selection; s != nil {
		shown.Selection = &api.Selection{Mode: string(v1alpha1.SelectAllBut), Providers: append([]string{}, s.Providers...)}
		if s.Mode != "" {
			shown.Selection.Mode = string(s.Mode)
		}
	} else {
		// A selection says nothing of it, whatever the API's default is.
		shown.Failover = string(p.Spec.Failover.Mode)
	}
	return shown
}
