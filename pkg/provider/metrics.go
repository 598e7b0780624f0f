package provider

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	liqometrics "github.com/liqotech/liqo/pkg/virtualKubelet/metrics"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
)

// Metrics are the metrics of a virtual kubelet, in addition to client-go's request metrics.
type Metrics struct{ refusals *prometheus.CounterVec }

// NewMetrics registers the metrics of Liqo's virtual kubelet under the same names (the two reflection counters and the
// process metrics), and the additional ones of this virtual kubelet. remote may be nil.
func NewMetrics(registry prometheus.Registerer, remote *ipam.Client) (*Metrics, error) {
	m := &Metrics{refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "liqo_broker_vk", Name: "refusals_total",
		Help: "Pods of a broker's node that the provider rejected, by reason.",
	}, []string{"reason"})}
	for _, reason := range refusal.Reasons() {
		m.refusals.WithLabelValues(reason)
	}
	for _, collector := range []prometheus.Collector{
		liqometrics.ItemsCounter, liqometrics.ErrorsCounter,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		m.refusals,
	} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	if remote == nil {
		return m, nil
	}
	if err := remote.RegisterMetrics(registry); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// PodsMetric returns the gauge of the pods that are served.
func PodsMetric(pods func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "liqo_broker_vk", Name: "pods", Help: "Pods that the virtual kubelet serves.",
	}, func() float64 { return float64(pods()) })
}

func (m *Metrics) refused(reason string) { m.refusals.WithLabelValues(reason).Inc() }
