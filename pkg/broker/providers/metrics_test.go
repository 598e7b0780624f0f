package providers

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

func requireMetrics(t *testing.T, registry *prometheus.Registry, name string, want ...string) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			header := "# HELP " + name + " " + family.GetHelp() +
				"\n# TYPE " + name + " " + strings.ToLower(family.GetType().String()) + "\n"
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(header+strings.Join(want, "\n")+"\n"), name))
			return
		}
	}
	require.Empty(t, want, "there is no %s", name)
}

func TestMetricsShowAProviderUntilItIsGone(t *testing.T) {
	known := state.New(state.Config{Clock: clock.RealClock{}, ProbeInterval: time.Minute})
	c := New(Config{State: known})
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	known.SetProvider("q", state.ProviderSpec{VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{})
	requireMetrics(t, registry, "liqo_broker_probes_total", `liqo_broker_probes_total{provider="q",result="answered"} 0`,
		`liqo_broker_probes_total{provider="q",result="failed"} 0`)
	requireMetrics(t, registry, "liqo_broker_refusals_total", `liqo_broker_refusals_total{provider="q",reason="pending_too_long"} 0`,
		`liqo_broker_refusals_total{provider="q",reason="refused"} 0`)
	requireMetrics(t, registry, "liqo_broker_provider_last_probe_timestamp_seconds")

	cpu := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
	pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	pc.Status = v1alpha1.ProviderClusterStatus{
		Pods: 2,
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse},
			{Type: v1alpha1.ProviderNetworkReady, Status: metav1.ConditionUnknown},
		},
		Resources: v1alpha1.Resources{Granted: cpu("4"), Assigned: cpu("1500m"), Free: cpu("2500m")},
	}
	c.latest[pc.Name] = pc
	requireMetrics(t, registry, "liqo_broker_capacity_free", `liqo_broker_capacity_free{provider="q",resource="cpu"} 2.5`)
	requireMetrics(t, registry, "liqo_broker_provider_up", `liqo_broker_provider_up{provider="q"} 1`)
	requireMetrics(t, registry, "liqo_broker_provider_schedulable", `liqo_broker_provider_schedulable{provider="q"} 1`)
	requireMetrics(t, registry, "liqo_broker_provider_condition", `liqo_broker_provider_condition{condition="Clean",provider="q"} 0`,
		`liqo_broker_provider_condition{condition="NetworkReady",provider="q"} 0`,
		`liqo_broker_provider_condition{condition="Ready",provider="q"} 1`)

	pc = &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: v1alpha1.ProviderClusterSpec{Enabled: ptr.To(false)}}
	c.latest[pc.Name] = pc
	requireMetrics(t, registry, "liqo_broker_provider_schedulable", `liqo_broker_provider_schedulable{provider="q"} 0`)
	requireMetrics(t, registry, "liqo_broker_capacity_free")

	requireMetrics(t, registry, "liqo_broker_provider_latency_seconds")
	known.ObserveProbe("q", state.Probe{Ended: noon, Answered: true, Took: 4 * time.Millisecond})
	known.ObserveProbe("q", state.Probe{Ended: noon.Add(1500 * time.Millisecond)})
	requireMetrics(t, registry, "liqo_broker_probes_total", `liqo_broker_probes_total{provider="q",result="answered"} 1`,
		`liqo_broker_probes_total{provider="q",result="failed"} 1`)
	requireMetrics(t, registry, "liqo_broker_provider_last_probe_timestamp_seconds",
		`liqo_broker_provider_last_probe_timestamp_seconds{provider="q"} 1.7723664015e+09`)
	requireMetrics(t, registry, "liqo_broker_provider_latency_seconds", `liqo_broker_provider_latency_seconds{provider="q"} 0.004`)

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "pod", UID: "uid", Labels: map[string]string{v1alpha1.VirtualNodeLabel: "q1", v1alpha1.ProviderLabel: "q"},
	}}
	known.ObserveStarted(pod, 2*time.Second)
	requireMetrics(t, registry, "liqo_broker_provider_pod_start_seconds",
		`liqo_broker_provider_pod_start_seconds{percentile="50",provider="q"} 2`,
		`liqo_broker_provider_pod_start_seconds{percentile="90",provider="q"} 2`)
	known.ObserveRefused(pod, state.Refusal{By: scheduler.Place{Provider: "q", VirtualNode: "q1"}, Reason: state.Refused})
	requireMetrics(t, registry, "liqo_broker_provider_failure_ratio", `liqo_broker_provider_failure_ratio{provider="q"} 0.5`)
	requireMetrics(t, registry, "liqo_broker_refusals_total", `liqo_broker_refusals_total{provider="q",reason="pending_too_long"} 0`,
		`liqo_broker_refusals_total{provider="q",reason="refused"} 1`)
	known.ObserveProbe("q", state.Probe{Ended: noon.Add(48 * time.Hour), Answered: true, Took: 4 * time.Millisecond})
	requireMetrics(t, registry, "liqo_broker_provider_failure_ratio") // One of two, days ago, does not count any more.

	known.RemoveProvider("q")
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Empty(t, families, "a provider that is gone")
}
