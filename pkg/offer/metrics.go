package offer

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// metrics are what the offers tell Prometheus.
type metrics struct {
	offers  *prometheus.GaugeVec
	denials *prometheus.CounterVec
	// shown are the series that exist.
	shown map[series]bool
}

type series struct {
	consumer string
	resource corev1.ResourceName
}

func newMetrics() *metrics {
	return &metrics{
		offers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "liqo_broker", Name: "offers",
			Help: "What a consumer is granted, all its slices together: CPU in cores, memory and storage in bytes.",
		}, []string{"consumer", "resource"}),
		denials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "liqo_broker", Name: "offer_denials_total", Help: "ResourceSlices that were denied, by consumer.",
		}, []string{"consumer"}),
		shown: map[series]bool{},
	}
}

func (m *metrics) register(registry prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.offers, m.denials} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// show replaces what is shown by what consumers have now.
func (m *metrics) show(byConsumer map[string]Amounts) {
	now := map[series]bool{}
	for consumer, amounts := range byConsumer {
		for name, amount := range amounts {
			now[series{consumer, name}] = true
			q := quantityOf(name, amount)
			m.offers.WithLabelValues(consumer, string(name)).Set(q.AsApproximateFloat64())
		}
	}
	for old := range m.shown {
		if !now[old] {
			m.offers.DeleteLabelValues(old.consumer, string(old.resource))
		}
	}
	m.shown = now
}
