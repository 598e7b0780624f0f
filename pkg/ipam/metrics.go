package ipam

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam/wire"
)

// Metrics are the metrics of the calls that a Server answers, or that a Client makes.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewMetrics returns the metrics of a Server, without a registry.
func NewMetrics() *Metrics {
	methods := make([]string, len(wire.Ipam_ServiceDesc.Methods))
	for i, method := range wire.Ipam_ServiceDesc.Methods {
		methods[i] = method.MethodName
	}
	return newMetrics("liqo_broker", "ipam", "Calls of the remote IPAM, by method and gRPC code.",
		"Time to answer a call of the remote IPAM, by method.", prometheus.ExponentialBuckets(50e-6, 4, 9), methods...)
}

func newClientMetrics() *Metrics {
	return newMetrics("liqo_broker_vk", "remote_ipam", "Calls to the remote IPAM, by method and gRPC code.",
		"Time until a call to the remote IPAM was answered, by method.", prometheus.ExponentialBuckets(0.001, 4, 8),
		path.Base(wire.Ipam_MapEndpointIP_FullMethodName), path.Base(wire.Ipam_UnmapEndpointIP_FullMethodName))
}

func newMetrics(namespace, subsystem, requests, duration string, buckets []float64, methods ...string) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total", Help: requests,
		}, []string{"method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "request_duration_seconds", Help: duration, Buckets: buckets,
		}, []string{"method"}),
	}
	for _, method := range methods {
		m.requests.WithLabelValues(method, codes.OK.String())
		m.duration.WithLabelValues(method)
	}
	return m
}

// Register adds them to a registry.
func (m *Metrics) Register(registry prometheus.Registerer) error {
	return errors.Join(registry.Register(m.requests), registry.Register(m.duration))
}

// RegisterMetrics registers the client's metrics.
func (c *Client) RegisterMetrics(registry prometheus.Registerer) error {
	return errors.Join(c.metrics.Register(registry), registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "liqo_broker_vk", Subsystem: "remote_ipam", Name: "unanswered",
		Help: "Requested addresses for which the remote IPAM has not answered yet.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(len(c.ledger.open))
	})))
}

func (m *Metrics) observe(method string, began time.Time, err error) {
	m.requests.WithLabelValues(method, status.Code(err).String()).Inc()
	m.duration.WithLabelValues(method).Observe(time.Since(began).Seconds())
}

// count counts and measures every call of a Client.
func (m *Metrics) count(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	call grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	began := time.Now()
	err := call(ctx, method, request, reply, conn, opts...)
	m.observe(path.Base(method), began, err)
	return err
}

// observe counts and measures every call, logs the hidden errors, and recovers from a panic of a handler.
func (s *Server) observe(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (response any, err error) {
	began, method := time.Now(), path.Base(info.FullMethod)
	defer func() {
		if fault := recover(); fault != nil {
			response, err = nil, &hidden{cause: fmt.Errorf("panic: %v\n%s", fault, debug.Stack())}
		}
		var concealed *hidden
		if errors.As(err, &concealed) {
			s.cfg.Log.Error(concealed.cause, "Cannot answer a call of the remote IPAM", "method", method)
		}
		s.cfg.Metrics.observe(method, began, err)
	}()
	return next(ctx, request)
}
