package catalog

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are the catalog's.
type metrics struct {
	requests *prometheus.HistogramVec
	refusals *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "liqo_catalog_request_duration_seconds",
			Help:    "How long requests took, by the template of their route; streams are as long as they were open.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
		}, []string{"route", "method", "code"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "liqo_catalog_refusals_total",
			Help: "Requests that were refused before they were looked at, by reason.",
		}, []string{"reason"}),
	}
}

// RegisterMetrics registers everything that the catalog tells Prometheus, besides what controller-runtime does: for those
// who ask what there is. The registry shows a catalog that has not begun.
func RegisterMetrics(registry prometheus.Registerer) error {
	return newMetrics().expose(registry, func() int { return 0 })
}

// expose registers them, and what was built.
func (m *metrics) expose(registry prometheus.Registerer, streams func() int) error {
	return errors.Join(m.register(registry, streams), registry.Register(collectors.NewBuildInfoCollector()))
}

// register adds them to a registry, with the number of open streams.
func (m *metrics) register(registry prometheus.Registerer, streams func() int) error {
	for _, collector := range []prometheus.Collector{
		m.requests, m.refusals,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "liqo_catalog_streams", Help: "Streams of changes that are open.",
		}, func() float64 { return float64(streams()) }),
	} {
		if err := registry.Register(collector); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) observe(path, method string, status int, took time.Duration) {
	if path == "" {
		path = "other"
	}
	known := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut}
	if !slices.Contains(known, method) {
		method = "other" // The client chooses it.
	}
	m.requests.WithLabelValues(path, method, strconv.Itoa(status)).Observe(took.Seconds())
}
