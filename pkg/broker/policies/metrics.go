package policies

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of each PlacementPolicy; docs/metrics.md describes them.
type Metrics struct{ valid, pods *prometheus.GaugeVec }

// NewMetrics returns Metrics of a registry; with nil they are not registered.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return promauto.With(registry).NewGaugeVec(
			prometheus.GaugeOpts{Namespace: "liqo_broker", Name: name, Help: help}, []string{"policy"})
	}
	return &Metrics{
		valid: gauge("policy_valid", "Whether a PlacementPolicy is valid (1) or not (0)."),
		pods:  gauge("policy_pods", "Assigned pods to which a PlacementPolicy applies."),
	}
}

func (m *Metrics) set(policy string, valid bool, pods int32) {
	m.valid.WithLabelValues(policy).Set(0)
	if valid {
		m.valid.WithLabelValues(policy).Set(1)
	}
	m.pods.WithLabelValues(policy).Set(float64(pods))
}

func (m *Metrics) remove(policy string) {
	m.valid.DeleteLabelValues(policy)
	m.pods.DeleteLabelValues(policy)
}
