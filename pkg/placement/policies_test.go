package placement

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func policy(name string, change func(*v1alpha1.PlacementPolicySpec)) *v1alpha1.PlacementPolicy {
	p := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change(&p.Spec)
	return p
}

func read(t *testing.T, objects ...client.Object) *Policies {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	return &Policies{
		Client:   fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		Programs: cel.NewCache(1 << 20),
		Defaults: Rules{Failover: v1alpha1.FailoverMove, FailoverAfter: time.Minute, PendingTimeout: 2 * time.Minute},
	}
}

func TestWhichPolicyCounts(t *testing.T) {
	consumerNamespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "ns", Labels: map[string]string{"liqo.io/remote-cluster-id": "c1", "team": "red"},
		Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/c1"},
	}}
	p := read(t,
		policy("all", func(*v1alpha1.PlacementPolicySpec) {}),
		policy("also-all", func(*v1alpha1.PlacementPolicySpec) {}),
		policy("of-c1", func(s *v1alpha1.PlacementPolicySpec) { s.Consumers, s.Priority = []string{"c1"}, 1 }),
		policy("of-c2", func(s *v1alpha1.PlacementPolicySpec) { s.Consumers, s.Priority = []string{"c2"}, 9 }),
		policy("web-of-red", func(s *v1alpha1.PlacementPolicySpec) {
			s.Priority = 2
			s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
			s.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		}),
	)
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		namespace           *corev1.Namespace
		want, problem       string
	}{
		"the first by name, if nothing else": {namespace: &corev1.Namespace{}, want: "all"},
		"the highest priority":               {namespace: consumerNamespace, want: "of-c1"},
		"selectors of both must match": {
			namespace: consumerNamespace, labels: map[string]string{"app": "web"}, want: "web-of-red",
		},
		"the pod names another": {
			namespace: consumerNamespace, annotations: map[string]string{v1alpha1.PolicyAnnotation: "also-all"}, want: "also-all",
		},
		"but not one of other consumers": {
			namespace: consumerNamespace, annotations: map[string]string{v1alpha1.PolicyAnnotation: "of-c2"},
			problem: `no PlacementPolicy "of-c2"`,
		},
		"nor one that does not exist": {
			namespace: consumerNamespace, annotations: map[string]string{v1alpha1.PolicyAnnotation: "none"},
			problem: `no PlacementPolicy "none"`,
		},
		"a bad filter of the pod is its fault": {
			namespace: consumerNamespace, annotations: map[string]string{v1alpha1.FilterAnnotation: "provider.nosuch == 1"},
			problem: v1alpha1.FilterAnnotation,
		},
		"a bad failover of the pod is its fault": {
			namespace: consumerNamespace, annotations: map[string]string{v1alpha1.FailoverAnnotation: "never"},
			problem: `use Move or Never`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", Labels: tc.labels, Annotations: tc.annotations}}
			got, err := p.CriteriaOf(t.Context(), pod, tc.namespace)
			if tc.problem != "" {
				require.ErrorIs(t, err, ErrInvalid)
				require.ErrorContains(t, err, tc.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got.Policy.Name)
		})
	}
}

func TestRulesComeFromTheFlagsThePolicyAndThePod(t *testing.T) {
	p := read(t, policy("db", func(s *v1alpha1.PlacementPolicySpec) {
		s.Failover = v1alpha1.Failover{Mode: v1alpha1.FailoverMove, After: &metav1.Duration{Duration: 5 * time.Second}}
		s.PendingTimeout = ptr.To(metav1.Duration{})
		s.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	}))
	rulesOf := func(labels, annotations map[string]string) Rules {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
		got, err := p.CriteriaOf(t.Context(), pod, &corev1.Namespace{})
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
		}
		return got.Rules
	}
	db := map[string]string{"app": "db"}
	require.Equal(t, p.Defaults, rulesOf(nil, nil))
	require.Equal(t, Rules{Failover: v1alpha1.FailoverMove, FailoverAfter: 5 * time.Second}, rulesOf(db, nil))
	require.Equal(t, v1alpha1.FailoverNever, rulesOf(db, map[string]string{v1alpha1.FailoverAnnotation: "Never"}).Failover)
	require.Equal(t, v1alpha1.FailoverNever, rulesOf(nil, map[string]string{v1alpha1.FailoverAnnotation: "neverr"}).Failover,
		"who mistypes it means to be careful")
	for name, annotations := range map[string]map[string]string{
		"its policy is gone":        {v1alpha1.PolicyAnnotation: "gone"},
		"its filter is not valid":   {v1alpha1.FilterAnnotation: "provider.nosuch"},
		"its own word comes second": {v1alpha1.PolicyAnnotation: "gone", v1alpha1.FailoverAnnotation: "Move"},
	} {
		require.Equal(t, Rules{Failover: v1alpha1.FailoverNever, FailoverAfter: time.Minute, PendingTimeout: 2 * time.Minute},
			rulesOf(nil, annotations), name)
	}
}

// An invalid filter in a policy does not make databases run twice.
func TestAPolicyThatIsNotValidMovesNothing(t *testing.T) {
	for name, mode := range map[string]v1alpha1.FailoverMode{"Move": v1alpha1.FailoverMove, "Never": v1alpha1.FailoverNever} {
		p := read(t, policy("broken", func(s *v1alpha1.PlacementPolicySpec) { s.Failover.Mode, s.Filter = mode, "provider.nosuch" }))
		got, err := p.CriteriaOf(t.Context(), &corev1.Pod{}, &corev1.Namespace{})
		require.ErrorIs(t, err, ErrInvalid)
		require.Equal(t, v1alpha1.FailoverNever, got.Rules.Failover, name)
	}
}

// The message about a policy that a pod may not name is the same whether the policy exists or not.
func TestNamesOfPoliciesAreNotToBeGuessed(t *testing.T) {
	p := read(t, selected("hidden", "c2", v1alpha1.SelectOnly), policy("private", func(s *v1alpha1.PlacementPolicySpec) {
		s.Consumers = []string{"c2"}
	}))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"liqo.io/remote-cluster-id": "c1"},
		Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/c1"},
	}}
	said := map[string]bool{}
	for _, name := range []string{"hidden", "private", "nosuch"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.PolicyAnnotation: name}}}
		_, err := p.CriteriaOf(t.Context(), pod, namespace)
		require.ErrorIs(t, err, ErrInvalid)
		said[strings.ReplaceAll(err.Error(), name, "NAME")] = true
	}
	require.Len(t, said, 1)
}

func TestAllFaultsOfAPolicyAreReported(t *testing.T) {
	_, err := read(t).Compile(policy("bad", func(s *v1alpha1.PlacementPolicySpec) {
		s.Filter, s.Score = "provider.id", "'x'"
		s.Weights, s.UptimeWindow = []v1alpha1.Weight{{Name: "luck", Weight: 1}}, "2d"
		s.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
		s.MaxUnavailable = ptr.To(intstr.FromString("0%"))
	}))
	for _, field := range []string{
		"spec.filter", "spec.score", "spec.weights", "spec.uptimeWindow", "spec.podSelector", "spec.maxUnavailable",
	} {
		require.ErrorContains(t, err, field)
	}
}

func TestThePolicySetsTheUptimeWindow(t *testing.T) {
	for window, want := range map[string]string{"": "q", "24h": "q", "1h": "q", "7d": "r", "30d": "r"} {
		compiled, err := read(t).Compile(policy("steady", func(s *v1alpha1.PlacementPolicySpec) {
			s.UptimeWindow, s.Weights = window, []v1alpha1.Weight{{Name: "uptime", Weight: 1}}
		}))
		require.NoError(t, err)
		state := scheduler.NewState()
		for id, kpis := range map[string]kpi.Values{
			"q": {kpi.Uptime1h: 1, kpi.Uptime24h: 1, kpi.Uptime7d: 0.5, kpi.Uptime30d: 0.5},
			"r": {kpi.Uptime1h: 0.9, kpi.Uptime24h: 0.9, kpi.Uptime7d: 0.9, kpi.Uptime30d: 0.9},
		} {
			state.SetProvider(scheduler.Provider{
				ID: id, Enabled: true, Ready: true, Namespaces: sets.New("ns"), KPIs: kpis,
				Slices: []scheduler.Slice{{VirtualNode: id}},
			})
		}
		d := state.Decide(time.Now(), &scheduler.Pod{Namespace: "ns"}, compiled)
		require.Equal(t, want, d.Provider, window)
	}
}

// selected is the selection of a consumer.
func selected(name, consumer string, mode v1alpha1.SelectionMode, providers ...string) *v1alpha1.PlacementPolicy {
	return policy(name, func(s *v1alpha1.PlacementPolicySpec) {
		s.Consumers, s.Selection = []string{consumer}, &v1alpha1.Selection{Mode: mode, Providers: providers}
	})
}

func TestASelectionIsOfItsConsumerAndBesideThePolicy(t *testing.T) {
	p := read(t,
		selected("a-first-by-name", "c1", v1alpha1.SelectAllBut, "p1"),
		policy("named", func(s *v1alpha1.PlacementPolicySpec) { s.Providers = []string{"p1", "p2"} }),
		selected("of-another", "c3", v1alpha1.SelectOnly),
		policy("without-consumers", func(s *v1alpha1.PlacementPolicySpec) { s.Selection = &v1alpha1.Selection{Mode: v1alpha1.SelectOnly} }),
	)
	fits := func(consumer string) map[string]string {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
		if consumer != "" {
			namespace.Labels = map[string]string{"liqo.io/remote-cluster-id": consumer}
			namespace.Annotations = map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/" + consumer}
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns"}}
		asked, err := p.CriteriaOf(t.Context(), pod, namespace)
		require.NoError(t, err)
		require.Equal(t, "named", asked.Policy.Name)
		state := scheduler.NewState()
		for _, id := range []string{"p1", "p2", "p3"} {
			state.SetProvider(scheduler.Provider{
				ID: id, Enabled: true, Ready: true, Namespaces: sets.New("ns"),
				Slices: []scheduler.Slice{{VirtualNode: id}},
			})
		}
		d := state.Decide(time.Now(), asked.Pod(pod, namespace), asked.Policy)
		reasons := map[string]string{}
		for i := range d.Verdicts {
			reasons[d.Verdicts[i].Provider] = d.Verdicts[i].Reason()
		}
		return reasons
	}
	require.Equal(t, map[string]string{"p1": "not selected by its consumer", "p2": "fits", "p3": "not named by the policy"}, fits("c1"))
	for _, other := range []string{"c2", ""} {
		require.Equal(t, map[string]string{"p1": "fits", "p2": "fits", "p3": "not named by the policy"}, fits(other))
	}
}

func TestASelectionIsNoPodsPolicy(t *testing.T) {
	p := read(t, selected("of-c1", "c1", v1alpha1.SelectAllBut))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"liqo.io/remote-cluster-id": "c1"},
		Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/c1"},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.PolicyAnnotation: "of-c1"}}}
	_, err := p.CriteriaOf(t.Context(), pod, namespace)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, `no PlacementPolicy "of-c1"`)
}
