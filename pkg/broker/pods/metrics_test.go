package pods

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// measured is a controller whose metrics are in a registry.
func measured(t *testing.T) (*Controller, *prometheus.Registry) {
	t.Helper()
	c := newController(t, true, interceptor.Funcs{}, nil)
	registry := prometheus.NewPedanticRegistry()
	c.Metrics = NewMetrics(registry, c.State)
	return c, registry
}

func requireMetrics(t *testing.T, registry *prometheus.Registry, name string, want ...string) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
	require.GreaterOrEqual(t, i, 0, "there is no %s", name)
	header := "# HELP " + name + " " + families[i].GetHelp() +
		"\n# TYPE " + name + " " + strings.ToLower(families[i].GetType().String()) + "\n"
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(header+strings.Join(want, "\n")+"\n"), name))
}

func TestMetricsBeginWithZero(t *testing.T) {
	_, registry := measured(t)
	requireMetrics(t, registry, "liqo_broker_moves_total", `liqo_broker_moves_total{reason="pending_too_long"} 0`,
		`liqo_broker_moves_total{reason="provider_drained"} 0`, `liqo_broker_moves_total{reason="provider_unreachable"} 0`,
		`liqo_broker_moves_total{reason="reclaimed"} 0`, `liqo_broker_moves_total{reason="refused"} 0`,
		`liqo_broker_moves_total{reason="virtual_node_gone"} 0`)
	requireMetrics(t, registry, "liqo_broker_decisions_total", `liqo_broker_decisions_total{outcome="assigned",provider="q"} 0`,
		`liqo_broker_decisions_total{outcome="invalid_criteria",provider=""} 0`,
		`liqo_broker_decisions_total{outcome="unassignable",provider=""} 0`)
}

func TestDecisionsAreCountedByOutcome(t *testing.T) {
	c, registry := measured(t)
	c.State.Assume(&scheduler.Pod{UID: "uid", Namespace: "ns", Name: "pod"}, nil)
	c.Metrics.invalid(time.Millisecond)
	c.Metrics.unassignable(time.Millisecond, nil)
	requireMetrics(t, registry, "liqo_broker_decisions_total", `liqo_broker_decisions_total{outcome="assigned",provider="q"} 1`,
		`liqo_broker_decisions_total{outcome="invalid_criteria",provider=""} 1`,
		`liqo_broker_decisions_total{outcome="unassignable",provider=""} 1`)
	c.State.RemoveProvider("q")
	requireMetrics(t, registry, "liqo_broker_decisions_total", `liqo_broker_decisions_total{outcome="invalid_criteria",provider=""} 1`,
		`liqo_broker_decisions_total{outcome="unassignable",provider=""} 1`)
}

func TestMetricsShowWhyNoProviderFits(t *testing.T) {
	c, _ := measured(t)
	c.Metrics.unassignable(time.Millisecond, []verdict.Verdict{
		{Provider: "p", Filter: verdict.Insufficient, Detail: "example.org/any-resource-of-a-pod"},
		{Provider: "q", Filter: verdict.Insufficient, Detail: "cpu"},
		{Provider: "r", Filter: verdict.NotReady},
		{Provider: "s", Filter: verdict.Passed},
	})
	rejections := c.Metrics.rejections
	require.Equal(t, 2., testutil.ToFloat64(rejections.WithLabelValues("insufficient")))
	require.Equal(t, 1., testutil.ToFloat64(rejections.WithLabelValues("not ready")))
	require.Zero(t, testutil.ToFloat64(rejections.WithLabelValues("fits")))
}

// A process that was a standby must not count long-running pods as pods that it started.
func TestOnlyStartsOfPodsThatThisLeaderAssignedAreMeasured(t *testing.T) {
	for name, tc := range map[string]struct {
		assigned time.Time
		starts   uint64
	}{
		"an earlier leader assigned it": {noon.Add(-time.Millisecond), 0},
		"this one assigned it":          {noon, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, registry := measured(t)
			c.leadsSince(t, noon)
			pod := assignedPod(corev1.PodRunning)
			pod.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: tc.assigned.Format(time.RFC3339Nano)}
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(time.Hour)),
			}}
			c.Clock = clocktesting.NewFakePassiveClock(noon.Add(3 * time.Second))
			c.measureStart(pod)
			c.measureStart(pod)
			families, err := registry.Gather()
			require.NoError(t, err)
			i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "liqo_broker_pod_start_seconds" })
			measured := families[i].GetMetric()[0].GetHistogram()
			require.Equal(t, tc.starts, measured.GetSampleCount())
			if tc.starts > 0 {
				require.Equal(t, 3., measured.GetSampleSum(), "by the broker's clock alone")
			}
		})
	}
}

// The label by which a refusal is read is removed by the same patch that evicts the pod.
func TestAnEvictionForARefusalIsTakenIn(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		withheld bool
	}{
		"by the quota of cpu":                              {refusal.QuotaExceeded + ":cpu", true},
		"by a quota that an older virtual kubelet reports": {refusal.QuotaExceeded, true},
		"by a rule": {refusal.Forbidden, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := assignedPod(corev1.PodPending, refusedBy("q1", noon))
			pod.Status.Conditions[0].Reason = tc.reason
			pod.Spec.Containers = cpus("1500m")
			c := newController(t, true, interceptor.Funcs{}, nil, pod)
			c.RefusalMemory = time.Minute
			require.NoError(t, c.evict(t.Context(), pod, placed("q1"), eviction.Refused))
			q, _ := c.State.Provider("q")
			require.Equal(t, 1, q.Refusals[state.Refused])

			other := assignedPod(corev1.PodPending)
			other.Name, other.UID, other.Spec.Containers = "other", "other", cpus("1")
			var d scheduler.Decision
			criteria, namespace, err := c.criteriaOf(t.Context(), other)
			require.NoError(t, err)
			d = c.State.Assume(criteria.Pod(other, namespace), nil)
			require.Equal(t, tc.withheld, d.VirtualNode == "")
		})
	}
}
