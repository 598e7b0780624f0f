package policies

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func TestThePodsOfEveryPolicyAreCounted(t *testing.T) {
	policy := func(name string, spec v1alpha1.PlacementPolicySpec) *v1alpha1.PlacementPolicy {
		return &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	pod := func(namespace, name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.VirtualNodeLabel: "q1"}, Annotations: map[string]string{},
		}}
		change(p)
		return p
	}
	asItIs := func(*corev1.Pod) {}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "shop", Labels: map[string]string{"liqo.io/remote-cluster-id": "c1"},
			Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/c1"},
		}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own"}},
		policy("all", v1alpha1.PlacementPolicySpec{}),
		policy("named", v1alpha1.PlacementPolicySpec{Priority: -1}),
		policy("selection-c1", v1alpha1.PlacementPolicySpec{Consumers: []string{"c1"}, Selection: &v1alpha1.Selection{}}),
		policy("selection-c2", v1alpha1.PlacementPolicySpec{Consumers: []string{"c2"}, Selection: &v1alpha1.Selection{}}),
		pod("shop", "one", asItIs), pod("shop", "two", asItIs), pod("own", "three", asItIs), pod("gone", "four", asItIs),
		pod("shop", "named", func(p *corev1.Pod) { p.Annotations[v1alpha1.PolicyAnnotation] = "named" }),
		pod("shop", "unassigned", func(p *corev1.Pod) { p.Labels = nil }),
		pod("shop", "done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
	}
	scheme, err := apischeme.New()
	require.NoError(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	controller := New(c, &placement.Policies{Client: c}, nil, clock.RealClock{}, NewMetrics(nil))
	counts, err := controller.countPods(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int32{"all": 3, "named": 1, "selection-c1": 3, "selection-c2": 0}, counts)
}

func TestACountServesSeveralPolicies(t *testing.T) {
	var kept podCounts
	runs, failure := 0, error(nil)
	count := func() (map[string]int32, error) {
		runs++
		return map[string]int32{"p": int32(runs)}, failure
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		later time.Duration
		want  int32
	}{{0, 1}, {countTTL - 1, 1}, {1, 2}, {time.Second, 2}} {
		at = at.Add(step.later)
		got, err := kept.read(at, count)
		require.NoError(t, err)
		require.Equal(t, step.want, got["p"])
	}
	failure = errors.New("away")
	_, err := kept.read(at.Add(countTTL), count)
	require.ErrorIs(t, err, failure)
}

func TestMetricsShowAPolicyUntilItIsGone(t *testing.T) {
	metrics := NewMetrics(nil)
	metrics.set("gold", true, 7)
	metrics.set("gold", false, 8)
	require.Zero(t, testutil.ToFloat64(metrics.valid))
	require.Equal(t, 8., testutil.ToFloat64(metrics.pods))
	metrics.remove("gold")
	require.Zero(t, testutil.CollectAndCount(metrics.valid))
	require.Zero(t, testutil.CollectAndCount(metrics.pods))
}
