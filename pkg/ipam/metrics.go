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

// Metrics are what a Server tells Prometheus.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewMetrics returns metrics without a registry.
func NewMetrics() *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "liqo_broker", Subsystem: "ipam", Name: "requests_total",
			Help: "Calls of the remote IPAM, by method and gRPC code.",
		}, []string{"method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "liqo_broker", Subsystem: "ipam", Name: "request_duration_seconds",
			Help: "Time to answer a call of the remote IPAM, by method.", Buckets: prometheus.ExponentialBuckets(50e-6, 4, 9),
		}, []string{"method"}),
	}
	for _, method := range wire.Ipam_ServiceDesc.Methods {
		m.requests.WithLabelValues(method.MethodName, codes.OK.String())
		m.duration.WithLabelValues(method.MethodName)
	}
	return m
}

// Register puts them in a registry.
func (m *Metrics) Register(registry prometheus.Registerer) error {
	if err := registry.Register(m.requests); err != nil {
		return err
	}
	return registry.Register(m.duration)
}

// observe counts and times every call, logs what the caller is not told, and survives a fault in a handler.
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
		s.cfg.Metrics.requests.WithLabelValues(method, status.Code(err).String()).Inc()
		s.cfg.Metrics.duration.WithLabelValues(method).Observe(time.Since(began).Seconds())
	}()
	return next(ctx, request)
}
