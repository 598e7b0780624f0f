package kubectl

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func policy(name string, spec v1alpha1.PlacementPolicySpec) *v1alpha1.PlacementPolicy {
	return &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}, Spec: spec}
}

func TestPolicies(t *testing.T) {
	cheap := policy("cheap", v1alpha1.PlacementPolicySpec{
		Priority: 10, Consumers: []string{"c1", "c2"}, Providers: []string{"p1"},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "batch"}},
		PodSelector:       &metav1.LabelSelector{},
		Weights:           []v1alpha1.Weight{{Name: "price", Weight: 3}, {Name: "free", Weight: 1}},
		Filter:            "provider.region == 'eu' &&\n  provider.uptime > 0.9",
		Failover:          v1alpha1.Failover{Mode: v1alpha1.FailoverMove, After: &metav1.Duration{Duration: 30 * time.Second}},
	})
	cheap.Status = v1alpha1.PlacementPolicyStatus{Pods: 4, Conditions: []metav1.Condition{{
		Type: v1alpha1.PolicyValid, Status: metav1.ConditionFalse, Message: "filter: no such key: regoin",
	}}}
	only := policy("only", v1alpha1.PlacementPolicySpec{
		Consumers: []string{"c1"}, Selection: &v1alpha1.Selection{Mode: v1alpha1.SelectOnly, Providers: []string{"p1", "p2"}},
	})
	s, screen := at(t, noFaults(), cheap, only, policy("plain", v1alpha1.PlacementPolicySpec{}))

	require.NoError(t, s.GetPolicies(t.Context(), Query{}))
	require.Equal(t, []string{
		"NAME VALID PRIORITY CONSUMERS PROVIDERS FAILOVER PODS AGE",
		"cheap False 10 c1,c2 p1 Move:30s 4 <unknown>",
		"only <unknown> <none> c1 Only:p1,p2 <none> 0 <unknown>",
		"plain <unknown> 0 all all Move 0 <unknown>",
	}, screen.lines())

	require.NoError(t, s.GetPolicies(t.Context(), Query{Names: []string{"cheap"}, Output: outputWide, NoHeaders: true}))
	require.Equal(t, []string{
		"cheap False 10 c1,c2 p1 Move:30s 4 <unknown> tier=batch all price=3,free=1 " +
			"provider.region == 'eu' && provider.uptime > 0.9 filter: no such key: regoin",
	}, screen.lines())

	require.NoError(t, s.GetPolicies(t.Context(), Query{
		Output: outputName, Labels: labels.SelectorFromSet(labels.Set{"name": "only"}), AllNamespaces: true,
	}))
	require.Equal(t, []string{"placementpolicy.brokering.liqo.io/only"}, screen.lines())

	require.ErrorContains(t, s.GetPolicies(t.Context(), Query{Names: []string{"none"}}), `"none" not found`)
}

func TestSelectionsAmongPolicies(t *testing.T) {
	for want, selection := range map[string]v1alpha1.Selection{
		"all":          {Mode: v1alpha1.SelectAllBut},
		"<none>":       {Mode: v1alpha1.SelectOnly},
		"AllBut:p1,p2": {Providers: []string{"p1", "p2"}},
		"Only:p1":      {Mode: v1alpha1.SelectOnly, Providers: []string{"p1"}},
	} {
		require.Equal(t, want, policyProviders(policy("s", v1alpha1.PlacementPolicySpec{Selection: &selection})))
	}
}

// A condition of an earlier spec says nothing about the present one.
func TestValidityOfAPolicy(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := policy("p", v1alpha1.PlacementPolicySpec{})
		p.Generation = rapid.Int64Range(1, 3).Draw(r, "generation")
		observed := rapid.Int64Range(0, 3).Draw(r, "observed")
		status := rapid.SampledFrom([]metav1.ConditionStatus{"True", "False"}).Draw(r, "status")
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PolicyValid, Status: status, ObservedGeneration: observed}}
		want := unknown
		if observed >= p.Generation {
			want = string(status)
		}
		require.Equal(r, want, policyValid(p))
	})
}
