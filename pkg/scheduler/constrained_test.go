package scheduler

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// constrainedPod returns a pod of namespace "team" with the label app=web, as Kubernetes and as the scheduler have it.
func constrainedPod(change func(*corev1.PodSpec)) (*corev1.Pod, *Pod) {
	of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pod", UID: "pod", Labels: map[string]string{"app": "web"}}}
	of.Spec.NodeName = "broker"
	change(&of.Spec)
	own := constraints.Of(of, nil)
	return of, asking(func(p *Pod) { p.Labels, p.Constraints, p.Peer = of.Labels, own, constraints.PeerOf(of, own) })
}

func nodeAffinity(terms ...corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
}

func termOf(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: requirements}
}

func need(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

func webSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func spreadOver(key string, change ...func(*corev1.TopologySpreadConstraint)) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		spread := corev1.TopologySpreadConstraint{
			TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: webSelector(),
		}
		for _, c := range change {
			c(&spread)
		}
		s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, spread)
	}
}

func antiAffinity(key string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: webSelector()}},
		}}
	}
}

func affinity(key string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: webSelector()}},
		}}
	}
}

// TestConstraintsAreAboutProviders has three providers: eu-1 and eu-2 in the region eu, us-1 in us. Two pods of the
// application run at eu-1.
func TestConstraintsAreAboutProviders(t *testing.T) {
	const region, zone = corev1.LabelTopologyRegion, corev1.LabelTopologyZone
	for name, tc := range map[string]struct {
		change func(*corev1.PodSpec)
		// want has the reason for each provider that does not fit.
		want map[string]string
	}{
		"a node selector by a well-known label": {
			func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{region: "eu"} },
			map[string]string{"us-1": "region not in [eu]"},
		},
		"a label that no provider has is the Node's": {
			func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"} }, nil,
		},
		"a label that a provider advertises is no reason": {
			func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"example.com/pool": "brokered"} }, nil,
		},
		"one that a provider has": {
			func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"example.com/disk": "ssd"} },
			map[string]string{"eu-1": "example.com/disk not in [ssd]", "us-1": "example.com/disk not in [ssd]"},
		},
		"the labels of virtual nodes are the Node's": {
			nodeAffinity(termOf(need("liqo.io/type", corev1.NodeSelectorOpIn, "virtual-node"),
				need(corev1.LabelHostname, corev1.NodeSelectorOpIn, "broker"))), nil,
		},
		"a term for other Nodes does not count": {
			nodeAffinity(
				termOf(need("liqo.io/type", corev1.NodeSelectorOpNotIn, "virtual-node"), need(region, corev1.NodeSelectorOpIn, "us")),
				termOf(need("liqo.io/type", corev1.NodeSelectorOpIn, "virtual-node"), need(region, corev1.NodeSelectorOpIn, "eu"))),
			map[string]string{"us-1": "region not in [eu]"},
		},
		"operators": {
			nodeAffinity(termOf(need(region, corev1.NodeSelectorOpNotIn, "us", "eu", "ap", "af"))),
			map[string]string{"eu-1": "region in [af ap eu …]", "eu-2": "region in [af ap eu …]", "us-1": "region in [af ap eu …]"},
		},
		"a comparison": {
			nodeAffinity(termOf(need("example.com/tier", corev1.NodeSelectorOpGt, "1"))),
			map[string]string{"eu-1": "example.com/tier not greater than 1", "us-1": "example.com/tier not greater than 1"},
		},
		"a label must not exist": {
			nodeAffinity(termOf(need("example.com/disk", corev1.NodeSelectorOpDoesNotExist))),
			map[string]string{"eu-2": "has a example.com/disk"},
		},
		"a spread over zones": {
			spreadOver(zone), map[string]string{"eu-1": "maxSkew 1 exceeded in zone a"},
		},
		"a spread over regions": {
			spreadOver(region), map[string]string{"eu-1": "maxSkew 1 exceeded in region eu", "eu-2": "maxSkew 1 exceeded in region eu"},
		},
		"a spread over Nodes is the provider's":                        {spreadOver(corev1.LabelHostname), nil},
		"a spread over a label that no provider has is the provider's": {spreadOver("example.com/rack"), nil},
		"a spread over a label that some lack": {
			spreadOver("example.com/disk"), map[string]string{"eu-1": "has no example.com/disk", "us-1": "has no example.com/disk"},
		},
		"too few domains": {
			spreadOver(zone, func(s *corev1.TopologySpreadConstraint) { s.MinDomains = new(int32); *s.MinDomains = 4 }),
			map[string]string{"eu-1": "maxSkew 1 exceeded in zone a"},
		},
		"a spread that is only preferred": {
			spreadOver(zone, func(s *corev1.TopologySpreadConstraint) { s.WhenUnsatisfiable = corev1.ScheduleAnyway }), nil,
		},
		"an anti-affinity by provider": {
			antiAffinity(v1alpha1.ProviderLabel),
			map[string]string{"eu-1": "anti-affinity to a pod in brokering.liqo.io/provider eu-1"},
		},
		"an anti-affinity by region": {
			antiAffinity(region),
			map[string]string{"eu-1": "anti-affinity to a pod in region eu", "eu-2": "anti-affinity to a pod in region eu"},
		},
		"an anti-affinity by Node is the provider's": {antiAffinity(corev1.LabelHostname), nil},
		"an affinity": {
			affinity(region), map[string]string{"us-1": "no pod of its affinity in region us"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(
				ready("eu-1", attributes("region", "eu", "zone", "a")),
				ready("eu-2", attributes("region", "eu", "zone", "b", "example.com/disk", "ssd", "example.com/tier", "2")),
				ready("us-1", attributes("region", "us", "zone", "c"), labelled("example.com/pool", "other", "region", "eu")),
			)
			of, pod := constrainedPod(tc.change)
			for i := range 2 {
				s.Assign(Assignment{
					UID: types.UID(fmt.Sprintf("web-%d", i)), Place: Place{"eu-1", "eu-1"},
					Peer: &constraints.Peer{Namespace: of.Namespace, Labels: of.Labels},
				})
			}
			d := decide(s, pod, nil)
			for _, v := range d.Verdicts {
				if reason := tc.want[v.Provider]; reason == "" {
					require.Equal(t, verdict.Passed, v.Filter, "%s: %s", v.Provider, v.Reason())
				} else {
					require.Equal(t, reason, v.Reason(), v.Provider)
				}
			}

			snapshot := s.Snapshot(pod)
			require.Equal(t, d.Result, decide(snapshot, pod, nil).Result, "a snapshot decides the same")
		})
	}
}

func TestTheAntiAffinityOfAnotherPodKeepsPodsAway(t *testing.T) {
	s := stateOf(ready("p1"), ready("p2"))
	of, _ := constrainedPod(antiAffinity(v1alpha1.ProviderLabel))
	of.UID = "other"
	s.Assign(Assignment{UID: of.UID, Place: Place{"p1", "p1"}, Peer: constraints.PeerOf(of, constraints.Of(of, nil))})
	_, plain := constrainedPod(func(*corev1.PodSpec) {})
	d := decide(s, plain, nil)
	require.Equal(t, "anti-affinity of a pod in brokering.liqo.io/provider p1", d.Verdicts[0].Reason())
	require.Equal(t, "p2", d.Provider)
	require.Equal(t, "p2", decide(s.Snapshot(plain), plain, nil).Provider)

	s.Release(HolderOf("other"))
	require.Equal(t, verdict.Passed, decide(s, plain, nil).Verdicts[0].Filter)
	require.Empty(t, s.peers, "nothing is left of a pod that is gone")
}

// TestADecisionOnASnapshotIsConfirmedByTheConstraints has another pod assigned while the decision is made.
func TestADecisionOnASnapshotIsConfirmedByTheConstraints(t *testing.T) {
	s := stateOf(ready("p1"), ready("p2", func(p *Provider) { p.Slices = []Slice{sliceOf("p2", 2000, 2*gi)} }))
	of, pod := constrainedPod(antiAffinity(v1alpha1.ProviderLabel))
	d := s.Snapshot(pod).Decide(now, pod, nil)
	require.Equal(t, "p1", d.Provider)
	s.Assign(Assignment{UID: "meanwhile", Place: Place{"p1", "p1"}, Peer: &constraints.Peer{Namespace: of.Namespace, Labels: of.Labels}})
	s.Confirm(now, pod, nil, &d)
	require.Equal(t, "p2", d.Provider)
}

func TestPreferredConstraintsScore(t *testing.T) {
	s := stateOf(ready("p1", attributes("region", "eu")), ready("p2", attributes("region", "us")))
	prefer := func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: 30, Preference: termOf(need(corev1.LabelTopologyRegion, corev1.NodeSelectorOpIn, "us"))},
				{Weight: 10, Preference: termOf(need(corev1.LabelTopologyRegion, corev1.NodeSelectorOpExists))},
			},
		}}
	}
	_, pod := constrainedPod(prefer)
	d := decide(s, pod, weighing("preferred"))
	require.Equal(t, "p2", d.Provider)
	require.Equal(t, []int{25, 100}, []int{d.Verdicts[0].Total, d.Verdicts[1].Total})

	_, plain := constrainedPod(func(*corev1.PodSpec) {})
	require.Empty(t, decide(s, plain, weighing("preferred")).Verdicts[0].Scores, "left out of a pod that prefers nothing")
}

// TestPodsMayMoveTogether has a group of pods that must be together, at a provider that takes no more.
func TestPodsMayMoveTogether(t *testing.T) {
	s := stateOf(ready("p1", func(p *Provider) { p.Draining = true }), ready("p2"))
	of, pod := constrainedPod(affinity(v1alpha1.ProviderLabel))
	for i := range 3 {
		s.Assign(Assignment{
			UID: types.UID(fmt.Sprintf("web-%d", i)), Place: Place{"p1", "p1"},
			Peer: &constraints.Peer{Namespace: of.Namespace, Labels: of.Labels},
		})
	}
	require.Equal(t, "p2", decide(s, pod, nil).Provider)
}

// TestOnlyPlacesForThePodAreDomains has providers in zones that the pod cannot use: they do not keep it from the others.
func TestOnlyPlacesForThePodAreDomains(t *testing.T) {
	zoned := func(id, zone string, change ...func(*Provider)) Provider {
		return ready(id, append(change, attributes("zone", zone))...)
	}
	for name, other := range map[string]Provider{
		"cordoned":      zoned("p2", "b", func(p *Provider) { p.Cordoned = true }),
		"without slice": zoned("p2", "b", granted()),
		"filtered":      zoned("p2", "b"),
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(zoned("p1", "a"), other)
			of, pod := constrainedPod(spreadOver(corev1.LabelTopologyZone))
			pod.Expression = filterOf(t, "provider.id != 'p2' || !has(provider.attributes.zone)")
			if name != "filtered" {
				pod.Expression = nil
			}
			for i := range 2 {
				s.Assign(Assignment{
					UID: types.UID(fmt.Sprintf("web-%d", i)), Place: Place{"p1", "p1"},
					Peer: &constraints.Peer{Namespace: of.Namespace, Labels: of.Labels},
				})
			}
			d := s.Snapshot(pod).Decide(now, pod, nil)
			require.Equal(t, "p1", d.Provider)
			s.Confirm(now, pod, nil, &d)
			require.Equal(t, "p1", d.Provider)
		})
	}
}

// TestPodsAtACordonedProviderCountInTheirZone has a zone with a cordoned provider and another one.
func TestPodsAtACordonedProviderCountInTheirZone(t *testing.T) {
	s := stateOf(ready("p1", attributes("zone", "a"), func(p *Provider) { p.Cordoned = true }),
		ready("p2", attributes("zone", "a")), ready("p3", attributes("zone", "b")))
	of, pod := constrainedPod(spreadOver(corev1.LabelTopologyZone))
	s.Assign(Assignment{UID: "web-0", Place: Place{"p1", "p1"}, Peer: &constraints.Peer{Namespace: of.Namespace, Labels: of.Labels}})
	d := decide(s, pod, nil)
	require.Equal(t, "maxSkew 1 exceeded in zone a", d.Verdicts[1].Reason())
	require.Equal(t, "p3", d.Provider)
}

// TestASnapshotSharesNoCounts releases a pod in a snapshot: the state itself still counts it.
func TestASnapshotSharesNoCounts(t *testing.T) {
	s := stateOf(ready("p1"), ready("p2"))
	of, pod := constrainedPod(antiAffinity(v1alpha1.ProviderLabel))
	s.Assign(Assignment{UID: pod.UID, Place: Place{"p1", "p1"}, Peer: constraints.PeerOf(of, pod.Constraints)})
	for _, with := range []*Pod{pod, asking()} {
		s.Snapshot(with).Release(HolderOf(pod.UID))
		other := *pod
		other.UID = "other"
		require.Equal(t, "p2", decide(s, &other, nil).Provider)
	}
}

// TestAReservationDoesNotCountThePodItself decides about a place to reserve for a pod that is still counted elsewhere.
func TestAReservationDoesNotCountThePodItself(t *testing.T) {
	s := stateOf(ready("p1", attributes("zone", "a")), ready("p2", attributes("zone", "a")))
	of, pod := constrainedPod(antiAffinity(corev1.LabelTopologyZone))
	s.Assign(Assignment{UID: pod.UID, Place: Place{"p1", "p1"}, Peer: constraints.PeerOf(of, pod.Constraints)})
	other := *pod
	other.Use = ReservedElsewhere
	require.NotEmpty(t, decide(s, &other, nil).Provider)
	require.NotEmpty(t, decide(s.Snapshot(&other), &other, nil).Provider)
}

// BenchmarkSlowestConstraints decides among 100 providers about a pod of a namespace with 1,000 pods that have as many
// terms of anti-affinity as are read, no two of them alike.
func BenchmarkSlowestConstraints(b *testing.B) {
	s := NewState()
	for i := range 100 {
		s.SetProvider(ready(fmt.Sprintf("p%02d", i), attributes("zone", fmt.Sprint(i%10))))
	}
	terms := func(name string) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) {
			var required []corev1.PodAffinityTerm
			for i := range constraints.MaxTerms {
				others := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web", name, fmt.Sprint(i)},
				}}}
				required = append(required, corev1.PodAffinityTerm{TopologyKey: corev1.LabelTopologyZone, LabelSelector: others})
			}
			spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: required,
			}}
		}
	}
	for i := range 1000 {
		of, _ := constrainedPod(terms(fmt.Sprint(i)))
		s.Assign(Assignment{
			UID: types.UID(fmt.Sprint(i)), Place: Place{fmt.Sprintf("p%02d", i%100), fmt.Sprintf("p%02d", i%100)},
			Peer: constraints.PeerOf(of, constraints.Of(of, nil)),
		})
	}
	_, pod := constrainedPod(terms("pod"))
	for b.Loop() {
		s.Decide(now, pod, nil)
	}
}
