package accounting

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics show whether the ledger is written. Only a leader has values.
type Metrics struct {
	lastWrite, open *prometheus.GaugeVec
	resources, cost *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		lastWrite: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "liqo_broker_ledger_last_write_timestamp_seconds",
			Help: "When the ledger was written last, or a leader began to try, in Unix time; absent without `--ledger`.",
		}, nil),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "liqo_broker_ledger_open_segments",
			Help: "Pods that hold resources at a provider, by the ledger; absent without `--ledger`.",
		}, nil),
		resources: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "liqo_broker_usage_resource_seconds_total",
			Help: "Requests of pods at a provider (cores, GiB, a number), times seconds, since this leader leads; " +
				"absent without `--ledger`.",
		}, []string{"consumer", "provider", "resource"}),
		cost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "liqo_broker_usage_cost_total",
			Help: "The cost of pods at a provider, since this leader leads; absent without `--ledger`.",
		}, []string{"consumer", "provider", "currency"}),
	}
	for _, c := range []prometheus.Collector{m.lastWrite, m.open, m.resources, m.cost} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) written(at time.Time, open int) {
	if m != nil {
		m.lastWrite.WithLabelValues().Set(float64(at.UnixMilli()) / 1000)
		m.open.WithLabelValues().Set(float64(open))
	}
}
