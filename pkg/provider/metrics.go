package provider

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	liqometrics "github.com/liqotech/liqo/pkg/virtualKubelet/metrics"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
)

// Metrics are those of a virtual kubelet, besides the requests of client-go.
type Metrics struct{ refusals *prometheus.CounterVec }

// NewMetrics registers what Liqo's virtual kubelet exposes, under the same names: the two reflection counters and those
// of the process; and what this one adds. pods returns how many pods are served; remote may be nil.
func NewMetrics(registry prometheus.Registerer, pods func() int, remote *ipam.Client) (*Metrics, error) {
	m := &Metrics{refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "liqo_broker_vk", Name: "refusals_total",
		Help: "Pods of a broker's node that the provider refused, by reason.",
	}, []string{"reason"})}
	for _, reason := range refusal.Reasons() {
		m.refusals.WithLabelValues(reason)
	}
	for _, collector := range []prometheus.Collector{
		liqometrics.ItemsCounter, liqometrics.ErrorsCounter,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		m.refusals,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "liqo_broker_vk", Name: "pods", Help: "Pods that the virtual kubelet serves.",
		}, func() float64 { return float64(pods()) }),
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

func (m *Metrics) refused(reason string) { m.refusals.WithLabelValues(reason).Inc() }

// metricsHandler serves the metrics of a registry, with the requests of client-go, which controller-runtime counts in a
// registry of its own as soon as it is linked in, as it is through Liqo.
func metricsHandler(registry prometheus.Gatherer) http.Handler {
	requests := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return onlyPrefix("rest_client_", ctrlmetrics.Registry)
	})
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{registry, requests}, promhttp.HandlerOpts{}))
	return mux
}

func onlyPrefix(prefix string, from prometheus.Gatherer) ([]*dto.MetricFamily, error) {
	families, err := from.Gather()
	var kept []*dto.MetricFamily
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), prefix) {
			kept = append(kept, family)
		}
	}
	return kept, err
}
