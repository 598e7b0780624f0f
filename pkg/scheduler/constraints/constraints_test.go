package constraints

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

func TestAPodWithoutConstraintsHasNone(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		NodeName: "broker", NodeSelector: map[string]string{corev1.LabelHostname: "broker"},
		Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				// As Liqo's webhook adds it.
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: "liqo.io/type", Operator: corev1.NodeSelectorOpIn, Values: []string{"virtual-node"},
				}}}},
			}},
			PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
					{TopologyKey: corev1.LabelHostname},
					{TopologyKey: corev1.LabelTopologyZone, Namespaces: []string{"another"}},
					{TopologyKey: corev1.LabelTopologyZone, NamespaceSelector: &metav1.LabelSelector{}},
				},
			},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelHostname}},
	}}
	require.Nil(t, Of(pod, nil))
	require.Nil(t, Of(pod, &Travelling{}))
}

func TestThePodsOwnValuesOfLabelKeysCount(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "rev": "1"}}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		TopologyKey: "zone", LabelSelector: selector, MatchLabelKeys: []string{"rev", "absent"},
	}}
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: "zone", LabelSelector: selector, MismatchLabelKeys: []string{"rev"},
		}},
	}}
	c := Of(pod, nil)
	same, other := labels.Set{"app": "web", "rev": "1"}, labels.Set{"app": "web", "rev": "2"}
	require.True(t, c.Spread[0].Selector.Matches(same))
	require.False(t, c.Spread[0].Selector.Matches(other))
	require.False(t, c.AntiAffinity[0].Selects(same))
	require.True(t, c.AntiAffinity[0].Selects(other))
}

func TestWhatAConsumerSendsCountsAsWell(t *testing.T) {
	sent, err := Parse(`{"nodeSelector": {"tier": "gold"}}`)
	require.NoError(t, err)
	c := Of(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}}, sent)
	require.Len(t, c.Required, 2, "both are to be met")

	for text, reason := range map[string]string{
		"{":                              "not JSON",
		`{"nodeAffinity": {}}`:           `unknown field "nodeAffinity"`,
		`{"nodeSelector": {"a b": "c"}}`: "nodeSelector",
		`{"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
			{"nodeSelectorTerms": [{}]}}}}`: "a term needs matchExpressions",
		`{"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
			{"nodeSelectorTerms": []}}}}`: "is empty",
		`{"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": -5}]}}}`: "the weight -5",
		`{"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
			{"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}]}}}`: "podAntiAffinity",
		`{"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}`: "needs a topologyKey",
	} {
		_, err = Parse(text)
		require.ErrorContains(t, err, reason, text)
	}
	_, err = Parse(strings.Repeat(" ", MaxSize+1))
	require.ErrorContains(t, err, "longer than 16384 bytes")
}

func TestConstraintsHaveBounds(t *testing.T) {
	var pod corev1.Pod
	spreads := slices.Repeat([]corev1.TopologySpreadConstraint{{TopologyKey: "zone"}}, MaxTerms+1)
	pod.Spec.TopologySpreadConstraints = spreads[:MaxTerms]
	require.Empty(t, Of(&pod, nil).Exceeded())
	pod.Spec.TopologySpreadConstraints = spreads
	require.Contains(t, Of(&pod, nil).Exceeded(), "more than 20")

	requirement := corev1.NodeSelectorRequirement{Key: "a", Operator: corev1.NodeSelectorOpExists}
	term := corev1.NodeSelectorTerm{MatchExpressions: slices.Repeat([]corev1.NodeSelectorRequirement{requirement}, MaxRequirements+1)}
	pod.Spec = corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
	}}}
	require.Contains(t, Of(&pod, nil).Exceeded(), "more than 200")
}

func TestTwoSpreadsOverOneKeyBecomeOne(t *testing.T) {
	within := WithinProvider([]corev1.TopologySpreadConstraint{
		{TopologyKey: corev1.LabelTopologyZone, MaxSkew: 3, WhenUnsatisfiable: corev1.DoNotSchedule},
		{TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway},
	})
	require.Len(t, within, 1, "an API server rejects two of the same key")
	require.EqualValues(t, 1, within[0].MaxSkew)
}

func TestAProviderPrefersToSpreadWithin(t *testing.T) {
	given := []corev1.TopologySpreadConstraint{
		{TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, MinDomains: ptr.To[int32](2)},
		{TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, MinDomains: ptr.To[int32](2)},
	}
	within := WithinProvider(given)
	require.Equal(t, corev1.ScheduleAnyway, within[0].WhenUnsatisfiable)
	require.Nil(t, within[0].MinDomains, "an API server rejects it with ScheduleAnyway")
	require.Equal(t, given[1], within[1])
	require.Equal(t, corev1.DoNotSchedule, given[0].WhenUnsatisfiable, "the cache's pod does not change")
}

func TestTheAnnotationHasWhatIsNotAboutTheNode(t *testing.T) {
	same := corev1.PodAffinityTerm{TopologyKey: "zone", Namespaces: []string{"ns"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: corev1.PodSpec{
		NodeName: "broker", NodeSelector: map[string]string{corev1.LabelHostname: "broker"},
		Affinity: &corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{Weight: 7, PodAffinityTerm: same}, {Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname}},
			}},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				same, {TopologyKey: "zone", Namespaces: []string{"another"}},
			}},
		},
	}}
	sent, err := Parse(Annotation(pod))
	require.NoError(t, err)
	here := corev1.PodAffinityTerm{TopologyKey: "zone"}
	require.Equal(t, &Travelling{Affinity: &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 7, PodAffinityTerm: here},
		}},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{here}},
	}}, sent)
	require.Empty(t, Annotation(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"type": "virtual-kubelet"}}}))
}
