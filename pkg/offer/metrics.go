package offer

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// Metrics of the offers.
type Metrics struct {
	available *prometheus.GaugeVec
	offers    *prometheus.GaugeVec
	denials   *prometheus.CounterVec
	// shown are the series that exist, consumers those that are shown with how often they were denied.
	shown     map[series]bool
	consumers map[string]bool
}

// series is of what a consumer has of a resource; with consumer "" of what there is of it.
type series struct {
	consumer string
	resource corev1.ResourceName
}

// NewMetrics returns metrics without a registry.
func NewMetrics() *Metrics {
	return &Metrics{
		available: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "liqo_broker", Name: "offers_available",
			Help: "What all consumers together can be granted: CPU in cores, memory and storage in bytes.",
		}, []string{"resource"}),
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

// Register puts them in a registry.
func (m *Metrics) Register(registry prometheus.Registerer) error {
	return errors.Join(registry.Register(m.available), registry.Register(m.offers), registry.Register(m.denials))
}

// set replaces what is shown by what there is now, and what consumers have of it: all that ask, even those denied.
// Resources that no provider has are not shown: consumers choose their names.
func (m *Metrics) set(available resources.Amounts, byConsumer map[string]resources.Amounts) {
	now, consumers := map[series]bool{}, map[string]bool{}
	for name, amount := range available {
		now[series{"", name}] = true
		m.available.WithLabelValues(string(name)).Set(inUnits(name, amount))
	}
	for consumer, amounts := range byConsumer {
		consumers[consumer] = true
		m.denials.WithLabelValues(consumer) // Shown as 0 before the first: it would else be no increase.
		for name, amount := range amounts {
			if _, there := available[name]; !there {
				continue
			}
			now[series{consumer, name}] = true
			m.offers.WithLabelValues(consumer, string(name)).Set(inUnits(name, amount))
		}
	}
	for old := range m.shown {
		switch {
		case now[old]:
		case old.consumer == "":
			m.available.DeleteLabelValues(string(old.resource))
		default:
			m.offers.DeleteLabelValues(old.consumer, string(old.resource))
		}
	}
	for consumer := range m.consumers {
		if !consumers[consumer] {
			m.denials.DeleteLabelValues(consumer)
		}
	}
	m.shown, m.consumers = now, consumers
}

func inUnits(name corev1.ResourceName, amount int64) float64 {
	q := resources.Quantity(name, amount)
	return q.AsApproximateFloat64()
}
