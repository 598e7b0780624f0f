package reoffload

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of the re-offloading.
type Metrics struct {
	offloadings *prometheus.CounterVec
	recreated   prometheus.Counter
}

// NewMetrics returns metrics without a registry.
func NewMetrics() *Metrics {
	m := &Metrics{
		offloadings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "liqo_broker", Name: "namespace_offloadings_total",
			Help: "NamespaceOffloadings of consumers' namespaces that were created, changed back or removed, by action.",
		}, []string{"action"}),
		recreated: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "liqo_broker", Name: "pods_recreated_total",
			Help: "Pods recreated because they were created before their namespace was offloaded.",
		}),
	}
	for do := create; do <= remove; do++ {
		m.offloadings.WithLabelValues(do.String())
	}
	return m
}

// Register registers them.
func (m *Metrics) Register(registry prometheus.Registerer) error {
	return errors.Join(registry.Register(m.offloadings), registry.Register(m.recreated))
}
