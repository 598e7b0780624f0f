package providers

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// descriptions are the metrics of each provider.
type descriptions struct {
	up, condition, schedulable, pods    *prometheus.Desc
	probes, lastProbe, refusals         *prometheus.Desc
	granted, assigned, free             *prometheus.Desc
	uptime, latency, podStart, failures *prometheus.Desc
}

func describe() descriptions {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("liqo_broker_"+name, help, append([]string{"provider"}, labels...), nil)
	}
	return descriptions{
		up:        desc("provider_up", "Whether a provider is Ready (1) or not (0)."),
		condition: desc("provider_condition", "Whether a condition of a provider is True (1) or not (0).", "condition"),
		schedulable: desc("provider_schedulable",
			"Whether the spec of a provider allows new pods: enabled, not cordoned, not drained (1), or not (0)."),
		pods:      desc("provider_pods", "Pods assigned to a provider that have not ended."),
		probes:    desc("probes_total", "Probes of a provider's API server, by result.", "result"),
		lastProbe: desc("provider_last_probe_timestamp_seconds", "When a provider was last probed, whatever the result, as a Unix time."),
		refusals:  desc("refusals_total", "Pods that a provider refused or did not start in time.", "reason"),

		granted:  desc("capacity_granted", "What a provider granted: CPU in cores, memory and storage in bytes.", "resource"),
		assigned: desc("capacity_assigned", "What the pods assigned to a provider request, those that have ended included.", "resource"),
		free:     desc("capacity_free", "What is granted and not assigned.", "resource"),

		uptime:   desc("provider_uptime_ratio", "Share of the last 24 hours in which a provider was reachable."),
		latency:  desc("provider_latency_seconds", "Median time in which a provider's API server answers."),
		podStart: desc("provider_pod_start_seconds", "Time from the assignment of a pod to its being ready, by percentile.", "percentile"),
		failures: desc("provider_failure_ratio", "Share of the assignments to a provider that failed."),
	}
}

// Describe implements prometheus.Collector.
func (c *Controller) Describe(descs chan<- *prometheus.Desc) {
	d := describe()
	for _, desc := range []*prometheus.Desc{
		d.up, d.condition, d.schedulable, d.pods, d.probes, d.lastProbe, d.refusals, d.granted, d.assigned, d.free,
		d.uptime, d.latency, d.podStart, d.failures,
	} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector: it shows the providers that are known, as they are now.
func (c *Controller) Collect(metrics chan<- prometheus.Metric) {
	d := describe()
	for _, id := range c.Belief.Providers() {
		emit := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
			metrics <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{id}, labels...)...)
		}
		if known, ok := c.Belief.Provider(id); ok {
			d.counts(&known, emit)
			d.kpis(&known, emit)
		}
		c.mu.Lock()
		latest := c.latest[id]
		c.mu.Unlock()
		if latest != nil {
			d.status(latest, emit)
		}
	}
}

type emitFunc func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string)

func (d *descriptions) counts(known *belief.Provider, emit emitFunc) {
	emit(d.probes, prometheus.CounterValue, float64(known.ProbesAnswered), "answered")
	emit(d.probes, prometheus.CounterValue, float64(known.ProbesFailed), "failed")
	if known.Probed {
		emit(d.lastProbe, prometheus.GaugeValue, float64(known.LastProbe.UnixMilli())/1000)
	}
	for reason, count := range known.Refusals {
		emit(d.refusals, prometheus.CounterValue, float64(count), string(reason))
	}
}

func (d *descriptions) kpis(known *belief.Provider, emit emitFunc) {
	values := kpi.ValuesOf(&known.KPIs)
	for _, shown := range []struct {
		desc   *prometheus.Desc
		name   string
		scale  float64
		labels []string
	}{
		{d.uptime, kpi.Uptime24h, 1, nil},
		{d.latency, kpi.LatencyMilliseconds, 0.001, nil},
		{d.podStart, kpi.PodStartP50Seconds, 1, []string{"50"}},
		{d.podStart, kpi.PodStartP90Seconds, 1, []string{"90"}},
		{d.failures, kpi.FailureRate, 1, nil},
	} {
		if value, ok := values[shown.name]; ok {
			emit(shown.desc, prometheus.GaugeValue, value*shown.scale, shown.labels...)
		}
	}
}

func (d *descriptions) status(pc *v1alpha1.ProviderCluster, emit emitFunc) {
	emit(d.up, prometheus.GaugeValue, number(meta.IsStatusConditionTrue(pc.Status.Conditions, v1alpha1.ProviderReady)))
	for i := range pc.Status.Conditions {
		kind := pc.Status.Conditions[i].Type
		if kind == v1alpha1.ProviderDrained {
			continue // The others are False for a fault.
		}
		emit(d.condition, prometheus.GaugeValue, number(meta.IsStatusConditionTrue(pc.Status.Conditions, kind)), kind)
	}
	translated := placement.Provider(pc, nil, nil)
	emit(d.schedulable, prometheus.GaugeValue, number(translated.Schedulable()))
	emit(d.pods, prometheus.GaugeValue, float64(pc.Status.Pods))
	r := &pc.Status.Resources
	for desc, list := range map[*prometheus.Desc]corev1.ResourceList{d.granted: r.Granted, d.assigned: r.Assigned, d.free: r.Free} {
		for name, amount := range list {
			emit(desc, prometheus.GaugeValue, amount.AsApproximateFloat64(), string(name))
		}
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
