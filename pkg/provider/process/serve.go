package process

import (
	"context"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

// IfNotDone returns err, or nil if ctx has ended: the end of ctx then caused err.
func IfNotDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// MetricsHandler serves the metrics of a registry and client-go's request metrics. controller-runtime counts those in
// its own registry as soon as it is linked in, which Liqo does.
func MetricsHandler(registry prometheus.Gatherer) http.Handler {
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

// ServeProfiles serves pprof until ctx ends. Unlike Liqo, it does not listen on every address of the pod.
func ServeProfiles(ctx context.Context, address string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return httpserve.ServeOn(ctx, address, "--profiling-address", mux)
}
