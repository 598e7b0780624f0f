package explain

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/backoff"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain/state"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// federationOf has the providers cheap and dear, of 4 CPUs each, for the namespace ns of consumer c1.
func federationOf(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	for id, price := range map[string]string{"cheap": "1", "dear": "9", "unpriced": "much"} {
		objects = append(objects, shown(id, "4", true, map[string]string{"price": price}), tenant(id), &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant(id).Name, Name: id, Labels: map[string]string{"liqo.io/remote-cluster-id": id}},
			Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"ns": ""}},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"ns": {Phase: offloadingv1beta1.MappingAccepted},
			}},
		})
	}
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "ns", Labels: map[string]string{"liqo.io/remote-cluster-id": "c1"},
		Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/c1"},
	}})
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

// explainerOf returns an explainer of the current state of a cluster.
func explainerOf(t *testing.T, c client.Reader) *Explainer {
	t.Helper()
	s, err := state.Read(t.Context(), c, "broker")
	require.NoError(t, err)
	return NewExplainer(c, "broker", s, time.Now)
}

func onBroker(pod *corev1.Pod, at string) *corev1.Pod {
	pod.Spec.NodeName = "broker"
	if at != "" {
		pod.Labels = map[string]string{v1alpha1.VirtualNodeLabel: at + "-1", v1alpha1.ProviderLabel: at}
	}
	return pod
}

func choices(e *Explanation) map[string]string {
	all := map[string]string{}
	for _, p := range e.Providers {
		all[p.Provider] = p.Filtered
	}
	return all
}

func TestAPodIsExplainedAsIfItTookNoRoom(t *testing.T) {
	c := federationOf(t, onBroker(cpuPod("big", "3"), "cheap"), onBroker(cpuPod("other", "1"), "dear"))
	e := explainerOf(t, c)
	for range 3 { // Not even after it was explained before.
		got, err := e.Pod(t.Context(), types.NamespacedName{Namespace: "ns", Name: "big"})
		require.NoError(t, err)
		require.Equal(t, "cheap", got.AssignedTo)
		require.Equal(t, map[string]string{"cheap": "", "dear": "", "unpriced": ""}, choices(got))
	}
	// The capacity that it uses counts as used for all other pods.
	got, err := e.Suppose(t.Context(), &Hypothesis{Namespace: "ns", Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"cheap": "insufficient cpu", "dear": "", "unpriced": ""}, choices(got))
}

func TestWhereAPodWasTriedIsExplained(t *testing.T) {
	tried := onBroker(cpuPod("web", "1"), "")
	tried.Annotations = map[string]string{
		v1alpha1.TriesAnnotation: backoff.Tries(nil).After("cheap-1", "not started within 2m", time.Now(), 5*time.Minute).Annotation(),
	}
	got, err := explainerOf(t, federationOf(t, tried)).Pod(t.Context(), types.NamespacedName{Namespace: "ns", Name: "web"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"cheap": "in back-off", "dear": "", "unpriced": ""}, choices(got))
	require.Contains(t, got.Message, "; was tried at cheap-1: not started within 2m; next try not before ")
}

// The grants of consumers are not read here: the broker has written on the pod that it waits for its consumer's grant.
func TestAPodBeyondTheGrantOfItsConsumerIsExplained(t *testing.T) {
	for at, want := range map[string]bool{"": true, "cheap": false} {
		pod := onBroker(cpuPod("web", "1"), at)
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: v1alpha1.ConditionAssigned, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonBeyondGrant,
			Message: "more than the grant of consumer c1",
		}}
		got, err := explainerOf(t, federationOf(t, pod)).Pod(t.Context(), types.NamespacedName{Namespace: "ns", Name: "web"})
		require.NoError(t, err)
		require.Equal(t, want, strings.Contains(got.Message, "; waiting: more than the grant of consumer c1"), got.Message)
	}
}

// The quota of the slice counts it until its ShadowPod is deleted.
func TestAPodThatHasEndedTakesRoom(t *testing.T) {
	kept := onBroker(cpuPod("kept", "3"), "cheap")
	kept.Status.Phase = corev1.PodSucceeded
	got, err := explainerOf(t, federationOf(t, kept)).
		Suppose(t.Context(), &Hypothesis{Namespace: "ns", Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"cheap": "insufficient cpu", "dear": "", "unpriced": ""}, choices(got))
}

func TestEveryVerdictShowsThePrice(t *testing.T) {
	e := explainerOf(t, federationOf(t))
	got, err := e.Suppose(t.Context(), &Hypothesis{Namespace: "ns"})
	require.NoError(t, err)
	prices := map[string]*float64{}
	for _, p := range got.Providers {
		prices[p.Provider] = p.Price
	}
	one, nine := 1.0, 9.0
	require.Equal(t, map[string]*float64{"cheap": &one, "dear": &nine, "unpriced": nil}, prices)
}

func TestWhatIsSupposedCounts(t *testing.T) {
	selection := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "selection-c1"}, Spec: v1alpha1.PlacementPolicySpec{
		Consumers: []string{"c1"}, Selection: &v1alpha1.Selection{Mode: v1alpha1.SelectAllBut, Providers: []string{"unpriced"}},
	}}
	policy := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "dearest"}, Spec: v1alpha1.PlacementPolicySpec{
		PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Providers: []string{"dear"},
	}}
	e := explainerOf(t, federationOf(t, selection, policy))
	byPrice := &v1alpha1.PlacementPolicySpec{Weights: []v1alpha1.Weight{{Name: "price", Weight: 1}}}
	for name, tc := range map[string]struct {
		Hypothesis
		chosen, policy, message string
	}{
		"the policy that is given": {Hypothesis: Hypothesis{Policy: byPrice}, chosen: "cheap"},
		"whatever it selects": {
			Hypothesis: Hypothesis{Policy: &v1alpha1.PlacementPolicySpec{Consumers: []string{"c9"}, Providers: []string{"dear"}}},
			chosen:     "dear",
		},
		"otherwise the one that would": {
			Hypothesis: Hypothesis{Labels: map[string]string{"app": "web"}}, chosen: "dear", policy: "dearest",
		},
		"the filter of the pod, too": {
			Hypothesis: Hypothesis{Policy: byPrice, Annotations: map[string]string{v1alpha1.FilterAnnotation: "provider.id == 'dear'"}},
			chosen:     "dear",
		},
		"what the consumer selected, too": {
			Hypothesis: Hypothesis{Policy: &v1alpha1.PlacementPolicySpec{Providers: []string{"unpriced"}}},
			message:    "0/3 provider clusters fit",
		},
		"a policy that the pod names in vain": {
			Hypothesis: Hypothesis{Annotations: map[string]string{v1alpha1.PolicyAnnotation: "none"}},
			message:    `there is no PlacementPolicy "none"`,
		},
		"more than anybody has fits nowhere": {
			Hypothesis: Hypothesis{Requests: corev1.ResourceList{"cpu": resource.MustParse("5")}},
			message:    "insufficient cpu",
		},
		"a score that fails has the error": {
			Hypothesis: Hypothesis{Policy: &v1alpha1.PlacementPolicySpec{Score: "double(provider.attributes['nosuch'])"}},
			message:    "no such key",
		},
		"a pod without anything goes anywhere": {chosen: "cheap"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.Namespace = "ns"
			got, err := e.Suppose(t.Context(), &tc.Hypothesis)
			require.NoError(t, err)
			require.Equal(t, tc.chosen, got.Chosen, got.Message)
			require.Equal(t, tc.policy, got.Policy)
			require.Contains(t, got.Message, tc.message)
		})
	}
}

func TestManyAskAtOnce(t *testing.T) {
	e := explainerOf(t, federationOf(t, onBroker(cpuPod("big", "3"), "cheap")))
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			var got *Explanation
			var err error
			if i%2 == 0 {
				got, err = e.Pod(t.Context(), types.NamespacedName{Namespace: "ns", Name: "big"})
			} else {
				// Expressions see the state itself, not a copy.
				got, err = e.Suppose(t.Context(), &Hypothesis{
					Namespace: "ns",
					Requests:  corev1.ResourceList{"cpu": resource.MustParse("2"), "example.org/gpu": resource.MustParse("0")},
					Policy: &v1alpha1.PlacementPolicySpec{
						Filter: "provider.resources.free['cpu'] > 0.0 && 'price' in provider.attributes && size(provider.labels) == 0",
					},
				})
			}
			if err != nil {
				t.Error(err)
				return
			}
			if want := map[string]string{"cheap": "", "dear": "", "unpriced": ""}; i%2 == 1 {
				want["cheap"] = "insufficient cpu"
				if choices(got)["cheap"] != want["cheap"] {
					t.Errorf("cheap: %q", choices(got)["cheap"])
				}
			}
		})
	}
	wg.Wait()

	require.NoError(t, e.slots.Acquire(t.Context(), maxParallel))
	defer e.slots.Release(maxParallel)
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.Suppose(impatient, &Hypothesis{Namespace: "ns"})
	require.ErrorIs(t, err, ErrBusy)
}

// Requests that compile expressions wait for their turn first, and are charged, also if the expressions are not valid.
func TestAnInvalidPolicyIsChargedAndWaits(t *testing.T) {
	e := explainerOf(t, federationOf(t))
	charged := 0
	charging := e.Charging(func(took time.Duration) {
		require.Positive(t, took)
		charged++
	})
	invalid := &Hypothesis{Namespace: "ns", Policy: &v1alpha1.PlacementPolicySpec{Filter: "nosuch"}}
	_, err := charging.Suppose(t.Context(), invalid)
	var fault *PolicyError
	require.ErrorAs(t, err, &fault)
	require.Equal(t, 1, charged)

	require.NoError(t, e.slots.Acquire(t.Context(), maxParallel))
	defer e.slots.Release(maxParallel)
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = charging.Suppose(impatient, invalid)
	require.ErrorIs(t, err, ErrBusy)
	require.Equal(t, 1, charged, "the time that it waits is not charged")
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	elsewhere := cpuPod("elsewhere", "1")
	elsewhere.Spec.NodeName = "other"
	e := explainerOf(t, federationOf(t, elsewhere))
	_, err := e.Pod(t.Context(), types.NamespacedName{Namespace: "ns", Name: "nosuch"})
	require.True(t, kerrors.IsNotFound(err), err)
	_, err = e.Pod(t.Context(), types.NamespacedName{Namespace: "ns", Name: "elsewhere"})
	require.ErrorIs(t, err, ErrOtherNode)
	_, err = e.Suppose(t.Context(), &Hypothesis{Namespace: "nosuch"})
	require.True(t, kerrors.IsNotFound(err), err)
}

// crd returns the faults that the API server would find in a policy, by the schema and the rules of the CRD.
func crd(t *testing.T) func(spec *v1alpha1.PlacementPolicySpec) field.ErrorList {
	t.Helper()
	text, err := os.ReadFile("../../deploy/crds/brokering.liqo.io_placementpolicies.yaml")
	require.NoError(t, err)
	var v1 apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(text, &v1))
	var internal apiextensions.JSONSchemaProps
	require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		v1.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil))
	structural, err := schema.NewStructural(&internal)
	require.NoError(t, err)
	validator, _, err := validation.NewSchemaValidator(&internal)
	require.NoError(t, err)
	rules := cel.NewValidator(structural, false, celconfig.PerCallLimit)
	return func(spec *v1alpha1.PlacementPolicySpec) field.ErrorList {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.PlacementPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: *spec,
		})
		require.NoError(t, err)
		// The client omits empty fields; so does the JSON of a request.
		faults := validation.ValidateCustomResource(nil, object, validator)
		faults = append(faults, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
		if len(faults) > 0 {
			return faults
		}
		more, _ := rules.Validate(t.Context(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
		return append(faults, more...)
	}
}

// An explanation rejects the same invalid fields of a policy as the API server. It also compiles the expressions, which
// the API server does not.
func TestAPolicyIsCheckedAsTheCRDDoes(t *testing.T) {
	check := crd(t)
	e := explainerOf(t, federationOf(t))
	seconds := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Second} }
	for name, tc := range map[string]struct {
		spec v1alpha1.PlacementPolicySpec
		// at is where the fault is; "" if there is none. beyond means that the CRD accepts it.
		at     string
		beyond bool
	}{
		"nothing": {},
		"all that is right": {spec: v1alpha1.PlacementPolicySpec{
			Priority: -3, Consumers: []string{"a", "b"}, Providers: []string{"p"}, Filter: "true", Score: "1",
			Weights: []v1alpha1.Weight{{Name: "price", Weight: 1000}, {Name: "free"}},
			Spread:  &v1alpha1.Spread{TopologyKey: "region"}, Failover: v1alpha1.Failover{Mode: "Move", After: seconds(5)},
			PendingTimeout: seconds(0), Volumes: "Recreate",
		}},
		"never moving": {spec: v1alpha1.PlacementPolicySpec{Failover: v1alpha1.Failover{Mode: "Never"}}},
		"an empty id":  {spec: v1alpha1.PlacementPolicySpec{Consumers: []string{""}}, at: "consumers[0]"},
		"an id that is too long": {
			spec: v1alpha1.PlacementPolicySpec{Providers: []string{string(make([]byte, 64))}}, at: "providers[0]",
		},
		"an id twice": {spec: v1alpha1.PlacementPolicySpec{Providers: []string{"p", "p"}}, at: "providers[1]"},
		"a score that is not known": {
			spec: v1alpha1.PlacementPolicySpec{Weights: []v1alpha1.Weight{{Name: "beauty", Weight: 1}}},
			at:   "weights[0].name",
		},
		"a score twice": {
			spec: v1alpha1.PlacementPolicySpec{Weights: []v1alpha1.Weight{{Name: "free", Weight: 1}, {Name: "free", Weight: 2}}},
			at:   "weights[1]",
		},
		"a weight below 0": {
			spec: v1alpha1.PlacementPolicySpec{Weights: []v1alpha1.Weight{{Name: "free", Weight: -1}}},
			at:   "weights[0].weight",
		},
		"a weight above 1000": {
			spec: v1alpha1.PlacementPolicySpec{Weights: []v1alpha1.Weight{{Name: "free", Weight: 1001}}},
			at:   "weights[0].weight",
		},
		"too many weights":           {spec: v1alpha1.PlacementPolicySpec{Weights: make([]v1alpha1.Weight, 33)}, at: "weights"},
		"an uptime window not known": {spec: v1alpha1.PlacementPolicySpec{UptimeWindow: "2d"}, at: "uptimeWindow"},
		"an empty topology":          {spec: v1alpha1.PlacementPolicySpec{Spread: &v1alpha1.Spread{}}, at: "spread.topologyKey"},
		"another failover": {
			spec: v1alpha1.PlacementPolicySpec{Failover: v1alpha1.Failover{Mode: "Maybe"}}, at: "failover.mode",
		},
		"a limit of the cost": {
			spec: v1alpha1.PlacementPolicySpec{MaxHourlyCost: &v1alpha1.Money{Amount: "0.5", Currency: "EUR"}},
		},
		"a limit that is no number": {
			spec: v1alpha1.PlacementPolicySpec{MaxHourlyCost: &v1alpha1.Money{Amount: "little"}}, at: "maxHourlyCost.amount",
		},
		"a currency that is none": {
			spec: v1alpha1.PlacementPolicySpec{MaxHourlyCost: &v1alpha1.Money{Amount: "1", Currency: "euros"}},
			at:   "maxHourlyCost.currency",
		},
		"other volumes": {spec: v1alpha1.PlacementPolicySpec{Volumes: "Move"}, at: "volumes"},
		"a failover too soon": {
			spec: v1alpha1.PlacementPolicySpec{Failover: v1alpha1.Failover{After: seconds(4)}}, at: "failover.after",
		},
		"when to do what is never done": {
			spec: v1alpha1.PlacementPolicySpec{Failover: v1alpha1.Failover{Mode: "Never", After: seconds(5)}},
			at:   "failover",
		},
		"a timeout in the past": {spec: v1alpha1.PlacementPolicySpec{PendingTimeout: seconds(-1)}, at: "pendingTimeout"},
		"half of the replicas":  {spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromString("50%"))}},
		"all replicas":          {spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromString("100%"))}},
		"one replica":           {spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))}},
		"no replica": {
			spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromInt32(0))}, at: "maxUnavailable",
		},
		"less than no replica": {
			spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromInt32(-1))}, at: "maxUnavailable",
		},
		"more replicas than there are": {
			spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromInt32(1000001))}, at: "maxUnavailable",
		},
		"no percentage of the replicas": {
			spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromString("0%"))}, at: "maxUnavailable",
		},
		"more than all replicas": {
			spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromString("101%"))}, at: "maxUnavailable",
		},
		"a part of a percent": {
			spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromString("2.5%"))}, at: "maxUnavailable",
		},
		"a percentage with a zero": {
			spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromString("05%"))}, at: "maxUnavailable",
		},
		"a number in quotes": {
			spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: ptr.To(intstr.FromString("2"))}, at: "maxUnavailable",
		},
		"a selection without consumers": {
			spec: v1alpha1.PlacementPolicySpec{Selection: &v1alpha1.Selection{Mode: "AllBut"}}, at: "selection",
		},
		"a selection": {
			spec: v1alpha1.PlacementPolicySpec{Consumers: []string{"c1"}, Selection: &v1alpha1.Selection{Mode: "AllBut"}},
			at:   "selection", beyond: true,
		},
		"a filter that does not parse": {spec: v1alpha1.PlacementPolicySpec{Filter: "provider."}, at: "filter", beyond: true},
		"a filter that is too long": {
			spec: v1alpha1.PlacementPolicySpec{Filter: "'" + string(make([]byte, 4096)) + "' == ''"}, at: "filter",
		},
		"a score that is no number": {spec: v1alpha1.PlacementPolicySpec{Score: "'high'"}, at: "score", beyond: true},
		"a selector that is none": {
			spec: v1alpha1.PlacementPolicySpec{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}},
			at:   "podSelector.matchLabels", beyond: true,
		},
		"a selector of another kind": {
			spec: v1alpha1.PlacementPolicySpec{NamespaceSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}},
			}},
			at: "namespaceSelector.matchExpressions[0].operator", beyond: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if faults := check(&tc.spec); tc.at == "" || tc.beyond {
				require.Empty(t, faults, "the CRD")
			} else {
				require.NotEmpty(t, faults, "the CRD")
			}
			_, err := e.Suppose(t.Context(), &Hypothesis{Namespace: "ns", Policy: &tc.spec})
			if tc.at == "" {
				require.NoError(t, err)
				return
			}
			var fault *PolicyError
			require.ErrorAs(t, err, &fault)
			require.Contains(t, fault.Faults[0].Field, "policy."+tc.at)
		})
	}
}
