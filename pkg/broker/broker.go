package broker

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/offer"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/reoffload"
)

// Broker is the leader at work.
type Broker struct {
	cfg    Config
	log    logr.Logger
	client client.Client
	// live reads the API itself, past the cache.
	live   client.Reader
	events record.EventRecorder

	core         *core
	connections  *connections
	prober       *prober
	node         *brokerNode
	policies     *placement.Policies
	policyCounts policyCounts

	metrics          *metrics
	ipamMetrics      *ipam.Metrics
	offerMetrics     *offer.Metrics
	namespaceMetrics *reoffload.Metrics
	// tracer is nil when nothing is traced.
	tracer trace.Tracer

	podQueue, providerQueue queue
	// wake has an element when the pods that wait for room are to be tried again.
	wake chan struct{}
	// goneChecks are the back-offs of asking whether a provider has let go of a pod.
	goneChecks workqueue.TypedRateLimiter[types.NamespacedName]

	// addresses says that Liqo maps the addresses of pods.
	addresses bool
	recalling sync.Mutex
	recalled  bool // Guarded by recalling.
	// since is when this broker began to lead. It is written once, by recall, before any pod is looked at.
	since time.Time

	homeOnce    sync.Mutex
	homeCluster string // Guarded by homeOnce.
}

func (b *Broker) now() time.Time { return time.Now() }

// report takes the result of a probe in.
func (b *Broker) report(id string, o observation) {
	b.core.ifKnown(id, func() { b.metrics.providers.probed(id, o) })
	if b.core.observe(id, o) {
		b.providerQueue.put(types.NamespacedName{Name: id})
	}
}

// settle waits until every provider has been looked at once, but not for long: those that hang are not Ready.
func (b *Broker) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*b.cfg.Times.ProbeTimeout+settleGrace)
	defer cancel()
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		var list v1alpha1.ProviderClusterList
		if err := b.client.List(ctx, &list); err == nil {
			ids := make([]string, 0, len(list.Items))
			for i := range list.Items {
				ids = append(ids, list.Items[i].Name)
			}
			if b.core.settled(ids) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

const (
	// settleGrace is how long the caches and connections may take at a start, beside the probes.
	settleGrace = 4 * time.Second
	settleEvery = 100 * time.Millisecond
)

// oneConnectionEach is one connection to every provider.
func (b *Broker) oneConnectionEach() []*connection {
	b.core.mu.Lock()
	first := map[string]string{}
	for virtualNode, provider := range b.core.homeOf {
		if known, ok := first[provider]; !ok || virtualNode < known {
			first[provider] = virtualNode
		}
	}
	b.core.mu.Unlock()
	all := make([]*connection, 0, len(first))
	for _, virtualNode := range first {
		if c := b.connections.get(virtualNode); c != nil {
			all = append(all, c)
		}
	}
	return all
}

// clusterID is the id of this cluster, as its peerings call it; "" while it has none.
func (b *Broker) clusterID(ctx context.Context) string {
	b.homeOnce.Lock()
	defer b.homeOnce.Unlock()
	if b.homeCluster != "" {
		return b.homeCluster
	}
	var slices authv1beta1.ResourceSliceList
	if err := b.client.List(ctx, &slices); err != nil {
		return ""
	}
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	for i := range slices.Items {
		spec := &slices.Items[i].Spec
		if _, provides := b.core.providers[string(ptr.Deref(spec.ProviderClusterID, ""))]; provides {
			b.homeCluster = string(ptr.Deref(spec.ConsumerClusterID, ""))
			break
		}
	}
	return b.homeCluster
}
