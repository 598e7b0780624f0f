package provider

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	liqometrics "github.com/liqotech/liqo/pkg/virtualKubelet/metrics"
)

// metricsHandler serves what Liqo's virtual kubelet serves, under the same names: the two reflection counters and the
// process's own; and the requests of client-go, which controller-runtime counts in a registry of its own as soon as it
// is linked in, as it is through Liqo.
func metricsHandler() (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, collector := range []prometheus.Collector{
		liqometrics.ItemsCounter, liqometrics.ErrorsCounter,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	requests := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return onlyPrefix("rest_client_", ctrlmetrics.Registry)
	})
	handler := promhttp.HandlerFor(prometheus.Gatherers{registry, requests}, promhttp.HandlerOpts{})

	mux := http.NewServeMux()
	mux.Handle("/metrics", handler)
	return mux, nil
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
