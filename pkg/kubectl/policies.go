package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// GetPolicies prints PlacementPolicies, and the selections of consumers, which are PlacementPolicies too.
func (s *Session) GetPolicies(ctx context.Context, q Query) error {
	q.AllNamespaces = false // They have no namespace; like kubectl, ignore the flag.
	if err := q.validate(); err != nil {
		return err
	}
	return s.printView(ctx, &view{
		list: &v1alpha1.PlacementPolicyList{}, one: &v1alpha1.PlacementPolicy{},
		options: q.selected(), matches: q.matches, columns: s.policyColumns(), nothing: "No resources found",
	}, &q)
}

func (s *Session) policyColumns() []column {
	of, wide := columnsOf[*v1alpha1.PlacementPolicy]()
	return []column{
		of("Name", func(p *v1alpha1.PlacementPolicy) string { return p.Name }),
		of("Valid", policyValid),
		of("Priority", func(p *v1alpha1.PlacementPolicy) string {
			if p.Spec.Selection != nil {
				return none // A selection is never the policy of a pod.
			}
			return fmt.Sprint(p.Spec.Priority)
		}),
		of("Consumers", func(p *v1alpha1.PlacementPolicy) string { return listed(p.Spec.Consumers) }),
		of("Providers", policyProviders),
		of("Failover", func(p *v1alpha1.PlacementPolicy) string { return policyFailover(&p.Spec) }),
		of("Pods", func(p *v1alpha1.PlacementPolicy) string { return fmt.Sprint(p.Status.Pods) }),
		of("Age", func(p *v1alpha1.PlacementPolicy) string { return age(s.Now(), p.CreationTimestamp.Time) }),
		wide("Namespaces", func(p *v1alpha1.PlacementPolicy) string { return selected(p.Spec.NamespaceSelector) }),
		wide("Pod-Selector", func(p *v1alpha1.PlacementPolicy) string { return selected(p.Spec.PodSelector) }),
		wide("Weights", policyWeights),
		wide("Filter", func(p *v1alpha1.PlacementPolicy) string { return oneLine(p.Spec.Filter) }),
		wide("Message", policyMessage),
	}
}

// policyValid returns the condition Valid; unknown until the broker has set it for the present spec.
func policyValid(p *v1alpha1.PlacementPolicy) string {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PolicyValid)
	if c == nil || c.ObservedGeneration < p.Generation {
		return unknown
	}
	return string(c.Status)
}

// policyMessage returns why a policy is not valid.
func policyMessage(p *v1alpha1.PlacementPolicy) string {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PolicyValid)
	if c == nil || c.Status == metav1.ConditionTrue {
		return none
	}
	return oneLine(c.Message)
}

// policyProviders returns the providers of a policy or of a selection.
func policyProviders(p *v1alpha1.PlacementPolicy) string {
	selection := p.Spec.Selection
	switch {
	case selection == nil:
		return listed(p.Spec.Providers)
	case selection.Mode == v1alpha1.SelectOnly && len(selection.Providers) == 0:
		return none
	case selection.Mode == v1alpha1.SelectOnly:
		return "Only:" + listed(selection.Providers)
	case len(selection.Providers) == 0:
		return listed(nil)
	}
	return "AllBut:" + listed(selection.Providers)
}

// policyFailover returns the mode and the time of a failover.
func policyFailover(spec *v1alpha1.PlacementPolicySpec) string {
	if spec.Selection != nil {
		return none
	}
	mode := cmp.Or(string(spec.Failover.Mode), string(v1alpha1.FailoverMove))
	if spec.Failover.After == nil {
		return mode
	}
	return mode + ":" + spec.Failover.After.Duration.String()
}

func policyWeights(p *v1alpha1.PlacementPolicy) string {
	weights := make([]string, 0, len(p.Spec.Weights))
	for _, w := range p.Spec.Weights {
		weights = append(weights, fmt.Sprintf("%s=%d", w.Name, w.Weight))
	}
	return cmp.Or(strings.Join(weights, ","), none)
}

// listed joins cluster ids; no id means all.
func listed(ids []string) string { return cmp.Or(strings.Join(ids, ","), "all") }

// selected returns the text of a selector; one that is nil or empty selects all.
func selected(selector *metav1.LabelSelector) string {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return "all"
	}
	return metav1.FormatLabelSelector(selector)
}

func oneLine(text string) string { return cmp.Or(strings.Join(strings.Fields(text), " "), none) }
