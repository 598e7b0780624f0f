package broker

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/policies"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/isolation"
	"github.com/capacitorset/liqo-broker-vk/pkg/offloading"
)

// Metrics are all metrics of the broker, except controller-runtime's.
type Metrics struct {
	pods       *pods.Metrics
	policies   *policies.Metrics
	ipam       *ipam.Metrics
	offers     *aggregator.Metrics
	namespaces *offloading.Metrics
	isolation  *isolation.Metrics
}

// NewMetrics returns Metrics of a registry. providers collects the metrics of each provider.
func NewMetrics(registry prometheus.Registerer, known *state.Federation, required *admission.Guard, podQueue *requeue.Queue,
	providers prometheus.Collector,
) (*Metrics, error) {
	registry.MustRegister(gauges{state: known, guard: required, podQueue: podQueue}, providers, collectors.NewBuildInfoCollector())
	m := &Metrics{
		pods: pods.NewMetrics(registry, known), policies: policies.NewMetrics(registry),
		ipam: ipam.NewMetrics(), offers: aggregator.NewMetrics(registry), namespaces: offloading.NewMetrics(registry),
		isolation: isolation.NewMetrics(registry),
	}
	return m, m.ipam.Register(registry)
}

// gauges collects how many pods there are in each state, all by one count.
type gauges struct {
	state    *state.Federation
	guard    *admission.Guard
	podQueue *requeue.Queue
}

func (g gauges) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, descs) }

func (g gauges) Collect(metrics chan<- prometheus.Metric) {
	counts, suspended := g.state.Counts(), 0
	if counts.SuspectsItself {
		suspended = 1
	}
	for _, gauge := range []struct {
		name, help string
		value      int
	}{
		{"queue_length", "Pods that wait to be reconciled.", g.podQueue.Len()},
		{"pods_assigned", "Pods of the node that are assigned to a provider and have not ended.", counts.Assigned},
		{"pods_unassigned", "Pods of the node for which no provider was found.", counts.Unassigned},
		{"pods_moving", "Pods that were evicted from a provider and have no other one yet.", counts.Moving},
		{"moves_delayed", "Pods that must leave their provider and wait for the limit of moves.", counts.Delayed},
		{"moves_waiting", "Pods that must leave a drained provider and wait until their replicas are Ready.", counts.Waiting},
		{
			"moves_suspended",
			"Whether moves from unreachable providers are suspended, because the broker suspects that it is disconnected " +
				"itself (1), or not (0).",
			suspended,
		},
		{
			"guard_policies_missing",
			"Policies of the guard that are not in force in the broker's cluster, 0 with --require-guard=false.",
			g.guard.Count(),
		},
	} {
		desc := prometheus.NewDesc("liqo_broker_"+gauge.name, gauge.help, nil, nil)
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(gauge.value))
	}
}

// serveMetrics serves the metrics of the broker and of controller-runtime (queues, requests) until ctx ends.
func serveMetrics(ctx context.Context, address string, registry prometheus.Gatherer) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{registry, crmetrics.Registry},
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	return httpserve.ServeOn(ctx, address, "--metrics-address", mux)
}
