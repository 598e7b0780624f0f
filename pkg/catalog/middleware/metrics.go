package middleware

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are the catalog's metrics.
type Metrics struct {
	requests *prometheus.HistogramVec
	refusals *prometheus.CounterVec
}

// NewMetrics returns Metrics that Register registers.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "liqo_catalog_request_duration_seconds",
			Help:    "Duration of requests by route template; for event streams, how long they were open.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
		}, []string{"route", "method", "code"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "liqo_catalog_refusals_total",
			Help: "Requests that were refused before they were handled, by reason.",
		}, []string{"reason"}),
	}
}

// Register registers them, with the number of open streams, and the build.
func (m *Metrics) Register(registry prometheus.Registerer, streams func() int) error {
	for _, collector := range []prometheus.Collector{
		m.requests, m.refusals,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "liqo_catalog_streams", Help: "Open event streams.",
		}, func() float64 { return float64(streams()) }),
		collectors.NewBuildInfoCollector(),
	} {
		if err := registry.Register(collector); err != nil {
			return err
		}
	}
	return nil
}

// RefusedConnections counts connections that were closed because their host has too many.
func (m *Metrics) RefusedConnections() prometheus.Counter {
	return m.refusals.WithLabelValues("connections")
}

func (m *Metrics) observe(path, method string, status int, took time.Duration) {
	known := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut}
	if !slices.Contains(known, method) {
		method = "other" // The client chooses it.
	}
	m.requests.WithLabelValues(cmp.Or(path, "other"), method, strconv.Itoa(status)).Observe(took.Seconds())
}
