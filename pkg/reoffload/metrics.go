package reoffload

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what the re-offloading tells Prometheus.
type Metrics struct {
	offloadings *prometheus.CounterVec
	recreated   prometheus.Counter
}

// NewMetrics returns metrics without a registry.
func NewMetrics() *Metrics {
	m := &Metrics{
		offloadings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "liqo_broker", Name: "namespace_offloadings_total",
			Help: "NamespaceOffloadings of consumers' namespaces that were made, changed back or removed, by which of these.",
		}, []string{"action"}),
		recreated: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "liqo_broker", Name: "pods_recreated_total",
			Help: "Pods made anew because they were faster than the offloading of their namespace.",
		}),
	}
	for do := create; do <= remove; do++ {
		m.offloadings.WithLabelValues(do.String())
	}
	return m
}

// Register puts them in a registry.
func (m *Metrics) Register(registry prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.offloadings, m.recreated} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}
