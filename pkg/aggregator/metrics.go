package aggregator

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// Metrics of the offers. It collects the available sum and the grants of each consumer.
type Metrics struct {
	denials *prometheus.CounterVec

	mu sync.Mutex
	// available is the sum, granted the grants of each consumer; both are replaced, never changed. Guarded by mu.
	available resources.Amounts
	granted   map[string]resources.Amounts
}

// NewMetrics returns metrics of a registry; nil is none.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{denials: promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
		Namespace: "liqo_broker", Name: "offer_denials_total", Help: "ResourceSlices that were denied, by consumer.",
	}, []string{"consumer"})}
	if registry != nil {
		registry.MustRegister(m)
	}
	return m
}

// set replaces the shown values by the present sum and the present grants of consumers: of all that request any, even
// denied ones.
func (m *Metrics) set(available resources.Amounts, granted map[string]resources.Amounts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for consumer := range m.granted {
		if _, asks := granted[consumer]; !asks {
			m.denials.DeleteLabelValues(consumer)
		}
	}
	for consumer := range granted {
		m.denials.WithLabelValues(consumer) // Shown as 0 before the first: it would else be no increase.
	}
	m.available, m.granted = available, granted
}

var (
	availableDesc = prometheus.NewDesc("liqo_broker_offers_available",
		"Resources that can be granted to all consumers together: CPU in cores, memory and storage in bytes.", []string{"resource"}, nil)
	offersDesc = prometheus.NewDesc("liqo_broker_offers",
		"Resources granted to a consumer, summed over its slices: CPU in cores, memory and storage in bytes.",
		[]string{"consumer", "resource"}, nil)
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- availableDesc
	descs <- offersDesc
}

// Collect implements prometheus.Collector. Resources that no provider has are not shown: consumers choose their names.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	m.mu.Lock()
	available, granted := m.available, m.granted
	m.mu.Unlock()
	for name, amount := range available {
		metrics <- prometheus.MustNewConstMetric(availableDesc, prometheus.GaugeValue, inUnits(name, amount), string(name))
		for consumer, amounts := range granted {
			if has, there := amounts[name]; there {
				metrics <- prometheus.MustNewConstMetric(offersDesc, prometheus.GaugeValue, inUnits(name, has), consumer, string(name))
			}
		}
	}
}

func inUnits(name corev1.ResourceName, amount int64) float64 {
	q := resources.Quantity(name, amount)
	return q.AsApproximateFloat64()
}
