package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/policies"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/guard"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/offer"
	"github.com/capacitorset/liqo-broker-vk/pkg/reoffload"
)

// Metrics are everything that the broker reports, besides what controller-runtime does.
type Metrics struct {
	belief    *belief.Belief
	guard     *guard.Guard
	podQueue  *requeue.Queue
	providers prometheus.Collector

	pods       *pods.Metrics
	policies   *policies.Metrics
	ipam       *ipam.Metrics
	offers     *offer.Metrics
	namespaces *reoffload.Metrics
}

// NewMetrics returns Metrics that are not registered. providers collects those of each provider.
func NewMetrics(known *belief.Belief, required *guard.Guard, podQueue *requeue.Queue, providers prometheus.Collector) *Metrics {
	return &Metrics{
		belief: known, guard: required, podQueue: podQueue, providers: providers, pods: pods.NewMetrics(known), policies: policies.NewMetrics(),
		ipam: ipam.NewMetrics(), offers: offer.NewMetrics(), namespaces: reoffload.NewMetrics(),
	}
}

// Register registers the metrics.
func (m *Metrics) Register(registry prometheus.Registerer) error {
	return errors.Join(
		registry.Register(gauges{m}), registry.Register(m.providers), registry.Register(collectors.NewBuildInfoCollector()),
		m.pods.Register(registry), m.policies.Register(registry), m.ipam.Register(registry),
		m.offers.Register(registry), m.namespaces.Register(registry),
	)
}

// gauges collects how many pods there are in each state, all by one count.
type gauges struct{ *Metrics }

func (g gauges) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, descs) }

func (g gauges) Collect(metrics chan<- prometheus.Metric) {
	counts, suspended := g.belief.Counts(), 0
	if g.belief.SuspectsItself() {
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
		{"moves_suspended", "Whether moves from unreachable providers are suspended, because the broker suspects that it is disconnected itself (1), or not (0).", suspended},
		{"guard_policies_missing", "Policies of the guard that are not in force in the broker's cluster, 0 with --require-guard=false.", g.guard.Count()},
	} {
		desc := prometheus.NewDesc("liqo_broker_"+gauge.name, gauge.help, nil, nil)
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(gauge.value))
	}
}

// serveMetrics serves the broker's metrics with those of controller-runtime (queues, requests) until ctx ends.
func serveMetrics(ctx context.Context, address string, metrics *Metrics) error {
	registry := prometheus.NewRegistry()
	if err := metrics.Register(registry); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{registry, crmetrics.Registry},
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	return httpserve.ServeOn(ctx, address, "--metrics-address", mux)
}
