package pods

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/podpatch"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Metrics are the metrics of pods and their decisions; docs/metrics.md describes them. No label is the name of a pod or
// a namespace: consumers would choose how many series there are.
type Metrics struct {
	decisions  *decisions
	rejections *prometheus.CounterVec
	decision   prometheus.Histogram
	wait       prometheus.Histogram

	moves *prometheus.CounterVec
	move  prometheus.Histogram
	start prometheus.Histogram

	writes *podpatch.Metrics
}

// NewMetrics returns Metrics of a registry; with nil they are not registered. Each possible event begins with 0, so
// that the first one is an increase.
func NewMetrics(registry prometheus.Registerer, known *state.Federation) *Metrics {
	auto := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Namespace: "liqo_broker", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Namespace: "liqo_broker", Name: name, Help: help, Buckets: buckets})
	}
	m := &Metrics{
		decisions: newDecisions(known),
		rejections: counter("rejections_total",
			"Providers that did not fit pods that could not be assigned, by reason.", "reason"),
		decision: histogram("decision_duration_seconds",
			"Time to choose a provider for a pod, without writing the assignment.", prometheus.ExponentialBuckets(10e-6, 4, 9)),
		wait: histogram("assignment_wait_seconds",
			"Time from the binding of a pod to the node to its first assignment to a provider.",
			prometheus.ExponentialBuckets(0.005, 3, 12)),
		moves: counter("moves_total", "Pods moved away from their providers, by reason.", "reason"),
		move: histogram("move_duration_seconds",
			"Time from the eviction of a pod from a provider to its assignment to the next one.",
			prometheus.ExponentialBuckets(0.05, 3, 10)),
		start: histogram("pod_start_seconds",
			"Time from the assignment of a pod to the start of its first container.", prometheus.ExponentialBuckets(0.25, 2, 12)),
		writes: podpatch.NewMetrics(registry),
	}
	if registry != nil {
		registry.MustRegister(m.decisions)
	}
	for filter := verdict.Passed + 1; filter <= verdict.Failed; filter++ {
		m.rejections.WithLabelValues(filter.String())
	}
	for _, r := range eviction.Reasons() {
		m.moves.WithLabelValues(string(r))
	}
	return m
}

// Writes are the metrics of all writes of pods.
func (m *Metrics) Writes() *podpatch.Metrics { return m.writes }

// decisions counts decisions by outcome. Those for a provider are shown as long as it is known.
type decisions struct {
	state                 *state.Federation
	desc                  *prometheus.Desc
	unassignable, invalid atomic.Int64
}

func newDecisions(known *state.Federation) *decisions {
	return &decisions{state: known, desc: prometheus.NewDesc("liqo_broker_decisions_total",
		"Decisions about pods, by outcome and the provider chosen.", []string{"outcome", "provider"}, nil)}
}

func (d *decisions) Describe(descs chan<- *prometheus.Desc) { descs <- d.desc }

func (d *decisions) Collect(metrics chan<- prometheus.Metric) {
	show := func(count int, outcome, provider string) {
		metrics <- prometheus.MustNewConstMetric(d.desc, prometheus.CounterValue, float64(count), outcome, provider)
	}
	for _, id := range d.state.Providers() {
		if known, ok := d.state.Provider(id); ok {
			show(known.Assignments, "assigned", id)
		}
	}
	show(int(d.unassignable.Load()), "unassignable", "")
	show(int(d.invalid.Load()), "invalid_criteria", "")
}

// unassignable counts a decision for which no provider fits, and why none does.
func (m *Metrics) unassignable(took time.Duration, verdicts []verdict.Verdict) {
	m.decisions.unassignable.Add(1)
	m.decision.Observe(took.Seconds())
	for i := range verdicts {
		if filter := verdicts[i].Filter; filter != verdict.Passed {
			m.rejections.WithLabelValues(filter.String()).Inc()
		}
	}
}

// invalid counts a decision that could not be made because the criteria are not valid.
func (m *Metrics) invalid(took time.Duration) {
	m.decisions.invalid.Add(1)
	m.decision.Observe(took.Seconds())
}
