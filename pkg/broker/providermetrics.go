package broker

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// providerMetrics are what the broker tells Prometheus of each provider. Those of one that is gone are gone, too.
type providerMetrics struct {
	up          *prometheus.GaugeVec
	conditions  *prometheus.GaugeVec
	schedulable *prometheus.GaugeVec
	probes      *prometheus.CounterVec
	lastProbe   *prometheus.GaugeVec
	refusals    *prometheus.CounterVec

	granted  *prometheus.GaugeVec
	assigned *prometheus.GaugeVec
	free     *prometheus.GaugeVec
	pods     *prometheus.GaugeVec

	uptime   *prometheus.GaugeVec
	latency  *prometheus.GaugeVec
	podStart *prometheus.GaugeVec
	failures *prometheus.GaugeVec

	mu sync.Mutex
	// resources are those that each provider is shown with. Guarded by mu.
	resources map[string]sets.Set[string]
}

func newProviderMetrics() *providerMetrics {
	return &providerMetrics{
		resources: map[string]sets.Set[string]{},
		up:        gauge("provider_up", "Whether a provider is Ready (1) or not (0).", "provider"),
		conditions: gauge("provider_condition",
			"Whether a condition of a provider is True (1) or not (0).", "provider", "condition"),
		schedulable: gauge("provider_schedulable",
			"Whether a provider is meant to get new pods: enabled, not cordoned, not drained (1), or not (0).", "provider"),
		probes: counter("probes_total", "Probes of a provider's API server, by what came of them.", "provider", "result"),
		lastProbe: gauge("provider_last_probe_timestamp_seconds",
			"When a provider was last probed, whatever came of it, as a Unix time.", "provider"),
		refusals: counter("refusals_total", "Pods that a provider refused or did not start in time.", "provider", "reason"),

		granted: gauge("capacity_granted",
			"What a provider granted: CPU in cores, memory and storage in bytes.", "provider", "resource"),
		assigned: gauge("capacity_assigned", "What the pods assigned to a provider request.", "provider", "resource"),
		free:     gauge("capacity_free", "What is granted and not assigned.", "provider", "resource"),
		pods:     gauge("provider_pods", "Pods assigned to a provider.", "provider"),

		uptime: gauge("provider_uptime_ratio",
			"Share of the last 24 hours in which a provider was reachable.", "provider"),
		latency: gauge("provider_latency_seconds",
			"Median time in which a provider's API server answers.", "provider"),
		podStart: gauge("provider_pod_start_seconds",
			"Time from the assignment of a pod to its being ready, by percentile.", "provider", "percentile"),
		failures: gauge("provider_failure_ratio", "Share of the assignments to a provider that failed.", "provider"),
	}
}

func (m *providerMetrics) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{
		m.up, m.conditions, m.schedulable, m.lastProbe, m.granted, m.assigned, m.free, m.pods, m.uptime, m.latency,
		m.podStart, m.failures,
	}
}

func (m *providerMetrics) all() []prometheus.Collector {
	all := []prometheus.Collector{m.probes, m.refusals}
	for _, vec := range m.gauges() {
		all = append(all, vec)
	}
	return all
}

// The results of a probe.
const (
	probeAnswered = "answered"
	probeFailed   = "failed"
)

// meet shows what can happen to a provider as 0 before it does.
func (m *metrics) meet(id string) {
	m.decisions.WithLabelValues(outcomeAssigned, id)
	for _, result := range []string{probeAnswered, probeFailed} {
		m.providers.probes.WithLabelValues(id, result)
	}
	for _, reason := range []moveReason{moveRefused, movePending} {
		m.providers.refusals.WithLabelValues(id, string(reason))
	}
}

func (m *metrics) forgetProvider(id string) {
	of := prometheus.Labels{"provider": id}
	for _, vec := range m.providers.gauges() {
		vec.DeletePartialMatch(of)
	}
	for _, vec := range []*prometheus.CounterVec{m.decisions, m.providers.probes, m.providers.refusals} {
		vec.DeletePartialMatch(of)
	}
	m.providers.mu.Lock()
	defer m.providers.mu.Unlock()
	delete(m.providers.resources, id)
}

func (m *providerMetrics) probed(id string, o observation) {
	result := probeFailed
	if o.up {
		result = probeAnswered
	}
	m.probes.WithLabelValues(id, result).Inc()
	m.lastProbe.WithLabelValues(id).Set(float64(o.at.UnixMilli()) / 1000)
}

// status shows a provider's status, which may not be written to it yet.
func (m *providerMetrics) status(pc *v1alpha1.ProviderCluster, status *v1alpha1.ProviderClusterStatus) {
	id := pc.Name
	m.up.WithLabelValues(id).Set(float64(number(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ProviderReady))))
	for i := range status.Conditions {
		kind := status.Conditions[i].Type
		m.conditions.WithLabelValues(id, kind).Set(float64(number(meta.IsStatusConditionTrue(status.Conditions, kind))))
	}
	enabled := pc.Spec.Enabled == nil || *pc.Spec.Enabled
	m.schedulable.WithLabelValues(id).Set(float64(number(enabled && !pc.Spec.Cordoned && !pc.Spec.Drain)))
	m.pods.WithLabelValues(id).Set(float64(status.Pods))
	m.capacity(id, &status.Resources)
}

// capacity shows the amounts that a provider has, and no longer those that it had.
func (m *providerMetrics) capacity(id string, r *v1alpha1.Resources) {
	shown := sets.New[string]()
	for vec, list := range map[*prometheus.GaugeVec]corev1.ResourceList{
		m.granted: r.Granted, m.assigned: r.Assigned, m.free: r.Free,
	} {
		for name, amount := range list {
			vec.WithLabelValues(id, string(name)).Set(amount.AsApproximateFloat64())
			shown.Insert(string(name))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.resources[id].Difference(shown) {
		for _, vec := range []*prometheus.GaugeVec{m.granted, m.assigned, m.free} {
			vec.DeleteLabelValues(id, name)
		}
	}
	m.resources[id] = shown
}

// kpis shows what is known of how a provider does; what is not known, or no longer, is not shown.
func (m *providerMetrics) kpis(id string, p *providerBelief) {
	share, known := p.tracker.Uptime().Share(24 * time.Hour)
	showIf(known, m.uptime, share, id)
	took, known := p.tracker.Latency()
	showIf(known, m.latency, took.Seconds(), id)
	p50, p90, known := p.tracker.PodStart()
	showIf(known, m.podStart, p50.Seconds(), id, "50")
	showIf(known, m.podStart, p90.Seconds(), id, "90")
	rate, known := p.tracker.FailureRate()
	showIf(known, m.failures, rate, id)
}

func showIf(known bool, vec *prometheus.GaugeVec, value float64, labels ...string) {
	if known {
		vec.WithLabelValues(labels...).Set(value)
	} else {
		vec.DeleteLabelValues(labels...)
	}
}
