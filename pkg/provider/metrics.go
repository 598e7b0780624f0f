package provider

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/labels"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	liqometrics "github.com/liqotech/liqo/pkg/virtualKubelet/metrics"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/brokernode"
)

// RegisterMetrics registers everything that a virtual kubelet tells Prometheus, besides the requests of client-go: for
// those who ask what there is. The registry shows one that has not begun.
func RegisterMetrics(registry prometheus.Registerer) error {
	reflection := &Reflection{pods: &podReflector{}, refusals: newRefusalCounter()}
	return reflection.registerMetrics(registry, ipam.NewClient(ipam.ClientConfig{}))
}

// registerMetrics registers what Liqo's virtual kubelet shows, under the same names: the two reflection counters and the
// process's own; and what ours adds. remote may be nil.
func (r *Reflection) registerMetrics(registry prometheus.Registerer, remote *ipam.Client) error {
	for _, collector := range []prometheus.Collector{
		liqometrics.ItemsCounter, liqometrics.ErrorsCounter,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		r.refusals,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "liqo_broker_vk", Name: "pods", Help: "Pods that the virtual kubelet serves.",
		}, func() float64 { return float64(r.pods.count()) }),
	} {
		if err := registry.Register(collector); err != nil {
			return err
		}
	}
	if remote == nil {
		return nil
	}
	return remote.RegisterMetrics(registry)
}

func newRefusalCounter() *prometheus.CounterVec {
	refusals := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "liqo_broker_vk", Name: "refusals_total",
		Help: "Pods of a broker's node that the provider did not take, by reason.",
	}, []string{"reason"})
	for _, reason := range []string{brokernode.ReasonForbidden, brokernode.ReasonNamespaceNotOffloaded} {
		refusals.WithLabelValues(reason)
	}
	return refusals
}

// count is how many pods there are.
func (pr *podReflector) count() int {
	if pr.localPods == nil {
		return 0
	}
	pods, err := pr.localPods.List(labels.Everything())
	if err != nil {
		return 0 // A cache never fails to list.
	}
	return len(pods)
}

// metricsHandler serves the metrics, with the requests of client-go, which controller-runtime counts in a registry of
// its own as soon as it is linked in, as it is through Liqo.
func (r *Reflection) metricsHandler(remote *ipam.Client) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	if err := r.registerMetrics(registry, remote); err != nil {
		return nil, err
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
