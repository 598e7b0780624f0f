package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// measured is a broker with the provider q, whose metrics are in a registry.
func measured(t *testing.T) (*Broker, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	b := &Broker{core: oneProvider(), cfg: Config{Times: Times{SuspicionWindow: time.Minute}}}
	b.measure()
	b.metrics.meet("q")
	require.NoError(t, b.registerMetrics(registry))
	return b, registry
}

func requireMetrics(t *testing.T, registry *prometheus.Registry, name, want string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(want) {
		lines = append(lines, strings.TrimSpace(line))
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			header := "# HELP " + name + " " + family.GetHelp() + "\n# TYPE " + name + " " + strings.ToLower(family.GetType().String()) + "\n"
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(header+strings.Join(lines, "\n")+"\n"), name))
			return
		}
	}
	require.Empty(t, strings.Join(lines, ""), "there is no %s", name)
}

func TestMetricsShowAProvider(t *testing.T) {
	b, registry := measured(t)
	cpu := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
	status := v1alpha1.ProviderClusterStatus{
		Pods: 2,
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse},
			{Type: v1alpha1.ProviderNetworkReady, Status: metav1.ConditionUnknown},
		},
		Resources: v1alpha1.Resources{Granted: cpu("4"), Assigned: cpu("1500m"), Free: cpu("2500m")},
	}
	pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	b.metrics.providers.status(pc, &status)
	requireMetrics(t, registry, "liqo_broker_capacity_free", `liqo_broker_capacity_free{provider="q",resource="cpu"} 2.5`)
	requireMetrics(t, registry, "liqo_broker_provider_up", `liqo_broker_provider_up{provider="q"} 1`)
	requireMetrics(t, registry, "liqo_broker_provider_schedulable", `liqo_broker_provider_schedulable{provider="q"} 1`)
	requireMetrics(t, registry, "liqo_broker_provider_condition", `liqo_broker_provider_condition{condition="Clean",provider="q"} 0
		liqo_broker_provider_condition{condition="NetworkReady",provider="q"} 0
		liqo_broker_provider_condition{condition="Ready",provider="q"} 1`)

	pc.Spec.Enabled = ptr.To(false)
	b.metrics.providers.status(pc, &v1alpha1.ProviderClusterStatus{})
	requireMetrics(t, registry, "liqo_broker_provider_schedulable", `liqo_broker_provider_schedulable{provider="q"} 0`)
	requireMetrics(t, registry, "liqo_broker_capacity_free", "")

	b.metrics.providers.probed("q", observation{at: noon, up: true})
	b.metrics.providers.probed("q", observation{at: noon.Add(1500 * time.Millisecond)})
	requireMetrics(t, registry, "liqo_broker_probes_total", `liqo_broker_probes_total{provider="q",result="answered"} 1
		liqo_broker_probes_total{provider="q",result="failed"} 1`)
	require.InDelta(t, float64(noon.Unix())+1.5, testutil.ToFloat64(b.metrics.providers.lastProbe.WithLabelValues("q")), 0.001)

	belief := &providerBelief{tracker: kpi.NewTracker(v1alpha1.KPIs{}, time.Minute)}
	b.metrics.providers.kpis("q", belief)
	requireMetrics(t, registry, "liqo_broker_provider_latency_seconds", "")
	belief.tracker.Probe(noon, true, 4*time.Millisecond)
	belief.tracker.PodStarted(2 * time.Second)
	b.metrics.providers.kpis("q", belief)
	requireMetrics(t, registry, "liqo_broker_provider_latency_seconds", `liqo_broker_provider_latency_seconds{provider="q"} 0.004`)
	requireMetrics(t, registry, "liqo_broker_provider_pod_start_seconds", `liqo_broker_provider_pod_start_seconds{percentile="50",provider="q"} 2
		liqo_broker_provider_pod_start_seconds{percentile="90",provider="q"} 2`)

	belief.tracker.PodFailed()
	b.metrics.providers.kpis("q", belief)
	requireMetrics(t, registry, "liqo_broker_provider_failure_ratio", `liqo_broker_provider_failure_ratio{provider="q"} 0.5`)
	belief.tracker.Probe(noon.Add(48*time.Hour), true, 4*time.Millisecond)
	b.metrics.providers.kpis("q", belief)
	requireMetrics(t, registry, "liqo_broker_provider_failure_ratio", "") // One of two, days ago, says nothing any more.

	b.metrics.decided(outcomeAssigned, "q", time.Millisecond)
	delete(b.core.providers, "q")
	b.metrics.forgetProvider("q")
	b.report("q", observation{at: noon, up: true})
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			require.NotContains(t, metric.String(), `value:"q"`, "%s of a provider that is gone", family.GetName())
		}
	}
}

func TestARefusalOfAProviderThatIsGoneIsNotShown(t *testing.T) {
	for name, of := range map[string]struct {
		virtualNode string
		want        float64
	}{"it is there": {"q1", 1}, "it is gone": {"gone", 0}} {
		t.Run(name, func(t *testing.T) {
			pod := boundPod()
			b, _ := traced(t, 0, interceptor.Funcs{}, pod)
			require.NoError(t, b.sendAway(t.Context(), b.read(t), of.virtualNode, movePending))
			total := 0.
			refusals := b.metrics.providers.refusals
			if testutil.CollectAndCount(refusals) > 0 {
				total = testutil.ToFloat64(refusals)
			}
			require.InDelta(t, of.want, total, 0)
		})
	}
}

func TestMetricsShowWhatCanHappenBeforeItDoes(t *testing.T) {
	_, registry := measured(t)
	requireMetrics(t, registry, "liqo_broker_moves_total", `liqo_broker_moves_total{reason="pending_too_long"} 0
		liqo_broker_moves_total{reason="provider_drained"} 0
		liqo_broker_moves_total{reason="provider_unreachable"} 0
		liqo_broker_moves_total{reason="refused"} 0
		liqo_broker_moves_total{reason="virtual_node_gone"} 0`)
	requireMetrics(t, registry, "liqo_broker_decisions_total", `liqo_broker_decisions_total{outcome="assigned",provider="q"} 0
		liqo_broker_decisions_total{outcome="invalid_criteria",provider=""} 0
		liqo_broker_decisions_total{outcome="unassignable",provider=""} 0`)
	requireMetrics(t, registry, "liqo_broker_refusals_total", `liqo_broker_refusals_total{provider="q",reason="pending_too_long"} 0
		liqo_broker_refusals_total{provider="q",reason="refused"} 0`)
}

func TestMetricsSayWhyNothingFits(t *testing.T) {
	b, _ := measured(t)
	b.metrics.rejected(&scheduler.Decision{Verdicts: []scheduler.Verdict{
		{Provider: "p", Filter: scheduler.Insufficient, Detail: "example.org/whatever-a-pod-asks-for"},
		{Provider: "q", Filter: scheduler.Insufficient, Detail: "cpu"},
		{Provider: "r", Filter: scheduler.NotReady},
		{Provider: "s", Filter: scheduler.Passed},
	}})
	require.Equal(t, 2., testutil.ToFloat64(b.metrics.rejections.WithLabelValues("insufficient")))
	require.Equal(t, 1., testutil.ToFloat64(b.metrics.rejections.WithLabelValues("not ready")))
	require.Zero(t, testutil.ToFloat64(b.metrics.rejections.WithLabelValues("fits")))
}

func TestMetricsFollowAMove(t *testing.T) {
	b, registry := measured(t)
	pod := cpuPod("pod", "1")
	b.core.assigned(pod, "q1")
	b.core.movedAway(pod, "q1", noon)
	requireMetrics(t, registry, "liqo_broker_pods_moving", "liqo_broker_pods_moving 1")

	took, moved := b.core.arrived(pod.UID, noon.Add(3*time.Second))
	require.True(t, moved)
	require.Equal(t, 3*time.Second, took)
	requireMetrics(t, registry, "liqo_broker_pods_moving", "liqo_broker_pods_moving 0")
	_, moved = b.core.arrived(pod.UID, noon.Add(9*time.Second))
	require.False(t, moved, "it is counted once")

	b.core.movedAway(pod, "q1", noon)
	require.Equal(t, "q1", b.core.decideOn(pod))
	b.core.doubt(pod.UID)
	requireMetrics(t, registry, "liqo_broker_pods_moving", "liqo_broker_pods_moving 1")
	b.core.assigned(pod, "q1")
	requireMetrics(t, registry, "liqo_broker_pods_moving", "liqo_broker_pods_moving 0") // It had been written all the same.

	b.core.movedAway(pod, "q1", noon)
	b.core.assigned(pod, "q1")
	requireMetrics(t, registry, "liqo_broker_pods_moving", "liqo_broker_pods_moving 1") // The cache is late.
	require.True(t, b.core.released(nameOf(pod), pod.UID))
	requireMetrics(t, registry, "liqo_broker_pods_moving", "liqo_broker_pods_moving 0")

	b.core.turns = newTurns(1, 1)
	require.Zero(t, b.core.mayMove("let go", noon))
	require.NotZero(t, b.core.mayMove("held", noon))
	require.Equal(t, 1, b.core.delayed())
	require.Zero(t, b.core.mayMove("held", noon.Add(2*time.Second)), "its turn has come")
	require.Zero(t, b.core.delayed())
}

// A replica that stood by must not take what ran long before for what it started.
func TestOnlyTheStartsOfPodsThatThisBrokerAssignedAreMeasured(t *testing.T) {
	for name, tc := range map[string]struct {
		assigned time.Time
		starts   uint64
	}{
		"an earlier leader assigned it": {noon.Add(-time.Millisecond), 0},
		"this one assigned it":          {noon, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b, registry := measured(t)
			b.since = noon
			pod := cpuPod("pod", "1")
			pod.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: tc.assigned.Format(time.RFC3339Nano)}
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(time.Hour)),
			}}
			b.measureStart(pod)
			b.measureStart(pod)
			families, err := registry.Gather()
			require.NoError(t, err)
			i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "liqo_broker_pod_start_seconds" })
			require.Equal(t, tc.starts, families[i].GetMetric()[0].GetHistogram().GetSampleCount())
		})
	}
}

func TestMetricsShowAPolicyUntilItIsGone(t *testing.T) {
	b, registry := measured(t)
	b.metrics.policy("gold", false, 7)
	requireMetrics(t, registry, "liqo_broker_policy_valid", `liqo_broker_policy_valid{policy="gold"} 0`)
	requireMetrics(t, registry, "liqo_broker_policy_pods", `liqo_broker_policy_pods{policy="gold"} 7`)
	b.metrics.forgetPolicy("gold")
	requireMetrics(t, registry, "liqo_broker_policy_valid", "")
	requireMetrics(t, registry, "liqo_broker_policy_pods", "")
}

func TestMetricsShowThatTheBrokerSuspectsItself(t *testing.T) {
	b, registry := measured(t)
	requireMetrics(t, registry, "liqo_broker_moves_suspended", "liqo_broker_moves_suspended 0")
	b.core.providers["r"] = &providerBelief{enabled: true, lost: noon}
	b.core.providers["q"].lost = noon
	requireMetrics(t, registry, "liqo_broker_moves_suspended", "liqo_broker_moves_suspended 1")
}

func TestPatchesThatFailAreCountedByReason(t *testing.T) {
	b, registry := measured(t)
	b.metrics.patched("pods", nil, time.Millisecond)
	b.metrics.patched("pods", errNoStatus{}, time.Millisecond)
	requireMetrics(t, registry, "liqo_broker_api_patch_errors_total", `liqo_broker_api_patch_errors_total{reason="Conflict",resource="pods"} 0
		liqo_broker_api_patch_errors_total{reason="Conflict",resource="pods/status"} 0
		liqo_broker_api_patch_errors_total{reason="Unknown",resource="pods"} 1`)
	b.metrics.patched("pods", kerrors.NewForbidden(corev1.Resource("pods"), "web", nil), time.Millisecond)
	b.metrics.patched("pods", &kerrors.StatusError{ErrStatus: metav1.Status{Reason: "pod web is not nice"}}, time.Millisecond)
	requireMetrics(t, registry, "liqo_broker_api_patch_errors_total",
		`liqo_broker_api_patch_errors_total{reason="Conflict",resource="pods"} 0
		liqo_broker_api_patch_errors_total{reason="Conflict",resource="pods/status"} 0
		liqo_broker_api_patch_errors_total{reason="Forbidden",resource="pods"} 1
		liqo_broker_api_patch_errors_total{reason="Other",resource="pods"} 1
		liqo_broker_api_patch_errors_total{reason="Unknown",resource="pods"} 1`)
}

type errNoStatus struct{}

func (errNoStatus) Error() string { return "connection refused" }

// A scrape reads what the broker believes, and holds vectors while it reads them; the broker makes metrics of a provider
// while it holds what it believes.
func TestAScrapeAndTheBrokerDoNotWaitForEachOther(t *testing.T) {
	b, registry := measured(t)
	for i := range 500 { // More series than a scrape has room for before it reads them.
		b.metrics.meet(fmt.Sprint("known-", i))
	}
	begun := make(chan struct{})
	require.NoError(t, registry.Register(collecting(func() { close(begun) })))
	b.core.mu.Lock()
	scraped := make(chan error, 1)
	go func() {
		_, err := registry.Gather()
		scraped <- err
	}()
	<-begun
	met := make(chan struct{})
	go func() {
		defer close(met)
		for i := range 2000 {
			b.metrics.meet(fmt.Sprint("new-", i))
		}
	}()
	select {
	case <-met:
	case <-time.After(time.Minute):
		t.Fatal("they wait for each other")
	}
	b.core.mu.Unlock()
	require.NoError(t, <-scraped)
}

// collecting is called when a scrape has begun, and has no metrics.
type collecting func()

func (collecting) Describe(chan<- *prometheus.Desc) {}

func (begun collecting) Collect(chan<- prometheus.Metric) { begun() }
