package offloading

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of the re-offloading.
type Metrics struct {
	offloadings *prometheus.CounterVec
	recreated   prometheus.Counter
}

// NewMetrics returns metrics of a registry; nil is none.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	auto := promauto.With(registry)
	m := &Metrics{
		offloadings: auto.NewCounterVec(prometheus.CounterOpts{
			Namespace: "liqo_broker", Name: "namespace_offloadings_total",
			Help: "NamespaceOffloadings of consumers' namespaces that were created, changed back or removed, by action.",
		}, []string{"action"}),
		recreated: auto.NewCounter(prometheus.CounterOpts{
			Namespace: "liqo_broker", Name: "pods_recreated_total",
			Help: "Pods recreated because they were created before their namespace was offloaded.",
		}),
	}
	for do := create; do <= remove; do++ {
		m.offloadings.WithLabelValues(do.String())
	}
	return m
}
