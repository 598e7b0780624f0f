package providers

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// descriptions are the metrics of each provider, by name.
type descriptions map[string]*prometheus.Desc

func describe() descriptions {
	all := descriptions{}
	for _, d := range []struct{ name, help, label string }{
		{"provider_up", "Whether a provider is Ready (1) or not (0).", ""},
		{"provider_condition", "Whether a condition of a provider is True (1) or not (0).", "condition"},
		{
			"provider_rejects",
			"Whether a provider is alive but unusable (1) or not (0): it rejects the broker, " +
				"its kubeconfig is unusable, or only /readyz fails.", "",
		},
		{"provider_schedulable", "Whether the spec of a provider allows new pods: enabled, not cordoned, not drained (1), or not (0).", ""},
		{"provider_pods", "Pods assigned to a provider that have not ended.", ""},
		{"probes_total", "Probes of a provider's API server, by result.", "result"},
		{"provider_last_probe_timestamp_seconds", "Unix time of the last probe of a provider, regardless of its result.", ""},
		{"refusals_total", "Pods that a provider refused or did not start in time.", "reason"},

		{"capacity_granted", "Resources that a provider granted: CPU in cores, memory and storage in bytes.", "resource"},
		{"capacity_assigned", "Resources requested by the pods assigned to a provider, ended pods included.", "resource"},
		{"capacity_free", "Resources that are granted and not assigned.", "resource"},

		{"provider_uptime_ratio", "Share of the last 24 hours in which a provider was reachable.", ""},
		{"provider_latency_seconds", "Median time in which a provider's API server answers.", ""},
		{
			"provider_pod_start_seconds",
			"Time from the assignment of a pod to the start of its first container, by percentile.", "percentile",
		},
		{"provider_failure_ratio", "Share of the assignments to a provider that failed.", ""},
	} {
		labels := []string{"provider"}
		if d.label != "" {
			labels = append(labels, d.label)
		}
		all[d.name] = prometheus.NewDesc("liqo_broker_"+d.name, d.help, labels, nil)
	}
	return all
}

// Describe implements prometheus.Collector.
func (c *Controller) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range describe() {
		descs <- desc
	}
}

// Collect implements prometheus.Collector: it shows the providers that are known, as they are now.
func (c *Controller) Collect(metrics chan<- prometheus.Metric) {
	d := describe()
	for _, id := range c.State.Providers() {
		emit := func(name string, kind prometheus.ValueType, value float64, labels ...string) {
			metrics <- prometheus.MustNewConstMetric(d[name], kind, value, append([]string{id}, labels...)...)
		}
		if known, ok := c.State.Provider(id); ok {
			emitCounts(&known, emit)
			emitKPIs(&known, emit)
		}
		c.mu.Lock()
		latest := c.latest[id]
		c.mu.Unlock()
		if latest != nil {
			emitStatus(latest, emit)
		}
	}
}

type emitFunc func(name string, kind prometheus.ValueType, value float64, labels ...string)

func emitCounts(known *state.Provider, emit emitFunc) {
	emit("probes_total", prometheus.CounterValue, float64(known.ProbesAnswered), "answered")
	emit("probes_total", prometheus.CounterValue, float64(known.ProbesFailed), "failed")
	emit("provider_rejects", prometheus.GaugeValue, number(known.Unusable && known.Reason != v1alpha1.ReasonKubeletReaches))
	if known.Probed {
		emit("provider_last_probe_timestamp_seconds", prometheus.GaugeValue, float64(known.LastProbe.UnixMilli())/1000)
	}
	for reason, count := range known.Refusals {
		emit("refusals_total", prometheus.CounterValue, float64(count), string(reason))
	}
}

func emitKPIs(known *state.Provider, emit emitFunc) {
	values := kpi.ValuesOf(&known.KPIs)
	for _, shown := range []struct {
		metric string
		kpi    string
		scale  float64
		labels []string
	}{
		{"provider_uptime_ratio", kpi.Uptime24h, 1, nil},
		{"provider_latency_seconds", kpi.LatencyMilliseconds, 0.001, nil},
		{"provider_pod_start_seconds", kpi.PodStartP50Seconds, 1, []string{"50"}},
		{"provider_pod_start_seconds", kpi.PodStartP90Seconds, 1, []string{"90"}},
		{"provider_failure_ratio", kpi.FailureRate, 1, nil},
	} {
		if value, ok := values[shown.kpi]; ok {
			emit(shown.metric, prometheus.GaugeValue, value*shown.scale, shown.labels...)
		}
	}
}

func emitStatus(pc *v1alpha1.ProviderCluster, emit emitFunc) {
	emit("provider_up", prometheus.GaugeValue, number(meta.IsStatusConditionTrue(pc.Status.Conditions, v1alpha1.ProviderReady)))
	for i := range pc.Status.Conditions {
		kind := pc.Status.Conditions[i].Type
		if kind == v1alpha1.ProviderDrained {
			continue // The others are False for a fault.
		}
		emit("provider_condition", prometheus.GaugeValue, number(meta.IsStatusConditionTrue(pc.Status.Conditions, kind)), kind)
	}
	translated := placement.Provider(pc, nil, nil)
	emit("provider_schedulable", prometheus.GaugeValue, number(translated.Schedulable()))
	emit("provider_pods", prometheus.GaugeValue, float64(pc.Status.Pods))
	r := &pc.Status.Resources
	for metric, list := range map[string]corev1.ResourceList{
		"capacity_granted": r.Granted, "capacity_assigned": r.Assigned, "capacity_free": r.Free,
	} {
		for name, amount := range list {
			emit(metric, prometheus.GaugeValue, amount.AsApproximateFloat64(), string(name))
		}
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
