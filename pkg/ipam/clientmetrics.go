package ipam

import (
	"context"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam/wire"
)

// clientMetrics are what a Client tells Prometheus.
type clientMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newClientMetrics() *clientMetrics {
	const namespace, subsystem = "liqo_broker_vk", "remote_ipam"
	m := &clientMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total",
			Help: "Calls to the remote IPAM, by method and gRPC code.",
		}, []string{"method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "request_duration_seconds",
			Help: "Time until a call to the remote IPAM was answered, by method.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"method"}),
	}
	for _, method := range []string{wire.Ipam_MapEndpointIP_FullMethodName, wire.Ipam_UnmapEndpointIP_FullMethodName} {
		m.requests.WithLabelValues(path.Base(method), codes.OK.String())
		m.duration.WithLabelValues(path.Base(method))
	}
	return m
}

// RegisterMetrics puts the client's metrics in a registry.
func (c *Client) RegisterMetrics(registry prometheus.Registerer) error {
	for _, collector := range []prometheus.Collector{
		c.metrics.requests, c.metrics.duration,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "liqo_broker_vk", Subsystem: "remote_ipam", Name: "unanswered",
			Help: "Addresses that were asked for and that the remote IPAM has not given an answer for.",
		}, func() float64 {
			c.mu.Lock()
			defer c.mu.Unlock()
			return float64(len(c.ledger.open))
		}),
	} {
		if err := registry.Register(collector); err != nil {
			return err
		}
	}
	return nil
}

// count counts and times every call.
func (m *clientMetrics) count(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	call grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	began := time.Now()
	err := call(ctx, method, request, reply, conn, opts...)
	m.requests.WithLabelValues(path.Base(method), status.Code(err).String()).Inc()
	m.duration.WithLabelValues(path.Base(method)).Observe(time.Since(began).Seconds())
	return err
}
