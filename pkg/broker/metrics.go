package broker

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// metrics are what the broker tells Prometheus.
type metrics struct {
	decisions   *prometheus.CounterVec
	decision    prometheus.Histogram
	wait        prometheus.Histogram
	moves       *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	patches     *prometheus.HistogramVec
	patchErrors *prometheus.CounterVec

	providerUp *prometheus.GaugeVec
	granted    *prometheus.GaugeVec
	assigned   *prometheus.GaugeVec
	free       *prometheus.GaugeVec
	pods       *prometheus.GaugeVec
	uptime     *prometheus.GaugeVec
	latency    *prometheus.GaugeVec
	podStart   *prometheus.GaugeVec
	failures   *prometheus.GaugeVec
}

func newMetrics() *metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "liqo_broker", Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "liqo_broker", Name: name, Help: help}, labels)
	}
	return &metrics{
		decisions: counter("decisions_total", "Decisions about pods, by what came of them and the provider chosen.", "outcome", "provider"),
		decision: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "liqo_broker", Name: "decision_duration_seconds",
			Help:    "Time to decide where a pod goes, without writing it.",
			Buckets: prometheus.ExponentialBuckets(10e-6, 4, 9),
		}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "liqo_broker", Name: "assignment_wait_seconds",
			Help:    "Time from the binding of a pod to the node to its first assignment to a provider.",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 12),
		}),
		moves:    counter("moves_total", "Pods moved away from where they were, by reason.", "reason"),
		refusals: counter("refusals_total", "Pods that a provider refused or did not start in time.", "provider", "reason"),
		patches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "liqo_broker", Name: "api_patch_duration_seconds",
			Help: "Time of the broker's patches, by resource.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"resource"}),
		patchErrors: counter("api_patch_errors_total", "Patches of the broker that failed, by resource and reason.", "resource", "reason"),

		providerUp: gauge("provider_up", "Whether a provider can be given pods (1) or not (0).", "provider"),
		granted:    gauge("capacity_granted", "What a provider granted: CPU in cores, memory and storage in bytes.", "provider", "resource"),
		assigned:   gauge("capacity_assigned", "What the pods assigned to a provider request.", "provider", "resource"),
		free:       gauge("capacity_free", "What is granted and not assigned.", "provider", "resource"),
		pods:       gauge("provider_pods", "Pods assigned to a provider.", "provider"),
		uptime:     gauge("provider_uptime_ratio", "Share of the last 24 hours in which a provider was reachable.", "provider"),
		latency:    gauge("provider_latency_seconds", "Median time in which a provider's API server answers.", "provider"),
		podStart:   gauge("provider_pod_start_seconds", "Time from the assignment of a pod to its being ready.", "provider", "quantile"),
		failures:   gauge("provider_failure_ratio", "Share of the assignments to a provider that failed.", "provider"),
	}
}

// register puts all of it in a registry; counts and queued read what is asked for at each scrape.
func (m *metrics) register(registry prometheus.Registerer, counts func() (assigned, unassigned int), queued func() int) error {
	part := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "liqo_broker", Name: name, Help: help},
			func() float64 { return float64(value()) })
	}
	for _, c := range []prometheus.Collector{
		m.decisions, m.decision, m.wait, m.moves, m.refusals, m.patches, m.patchErrors, m.providerUp, m.granted, m.assigned,
		m.free, m.pods, m.uptime, m.latency, m.podStart, m.failures,
		part("queue_length", "Pods that wait to be looked at.", queued),
		part("pods_assigned", "Pods of the node that are assigned to a provider.", func() int { n, _ := counts(); return n }),
		part("pods_unassigned", "Pods of the node for which no provider was found.", func() int { _, n := counts(); return n }),
	} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) decided(outcome, provider string, took time.Duration) {
	m.decisions.WithLabelValues(outcome, provider).Inc()
	m.decision.Observe(took.Seconds())
}

func (m *metrics) patched(resource string, err error, took time.Duration) {
	m.patches.WithLabelValues(resource).Observe(took.Seconds())
	if err != nil {
		reason := string(kerrors.ReasonForError(err))
		if reason == "" {
			reason = "Unknown"
		}
		m.patchErrors.WithLabelValues(resource, reason).Inc()
	}
}

// provider shows a provider's status.
func (m *metrics) provider(id string, status *v1alpha1.ProviderClusterStatus) {
	up := 0.
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ProviderReady) {
		up = 1
	}
	m.providerUp.WithLabelValues(id).Set(up)
	m.pods.WithLabelValues(id).Set(float64(status.Pods))
	for vec, list := range map[*prometheus.GaugeVec]corev1.ResourceList{
		m.granted: status.Resources.Granted, m.assigned: status.Resources.Assigned, m.free: status.Resources.Free,
	} {
		for name, amount := range list {
			vec.WithLabelValues(id, string(name)).Set(amount.AsApproximateFloat64())
		}
	}
}

// kpis shows what is known of how a provider does; what is not known is not shown.
func (m *metrics) kpis(id string, p *providerBelief) {
	if share, known := p.tracker.Uptime().Share(24 * time.Hour); known {
		m.uptime.WithLabelValues(id).Set(share)
	}
	if took, known := p.tracker.Latency(); known {
		m.latency.WithLabelValues(id).Set(took.Seconds())
	}
	if p50, p90, known := p.tracker.PodStart(); known {
		m.podStart.WithLabelValues(id, "0.5").Set(p50.Seconds())
		m.podStart.WithLabelValues(id, "0.9").Set(p90.Seconds())
	}
	if rate, known := p.tracker.FailureRate(); known {
		m.failures.WithLabelValues(id).Set(rate)
	}
}

func (m *metrics) forgetProvider(id string) {
	for _, vec := range []*prometheus.GaugeVec{
		m.providerUp, m.granted, m.assigned, m.free, m.pods, m.uptime, m.latency, m.podStart, m.failures,
	} {
		vec.DeletePartialMatch(prometheus.Labels{"provider": id})
	}
}

// encodeMetrics writes metric families in Prometheus' text format, by name.
func encodeMetrics(families map[string]*dto.MetricFamily) ([]byte, error) {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if _, err := expfmt.MetricFamilyToText(&out, families[name]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
