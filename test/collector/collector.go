package collector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// Collector keeps the spans that it receives.
type Collector struct {
	listener net.Listener
	server   *grpc.Server
	served   chan error

	mu    sync.Mutex
	spans []Span        // Guarded by mu.
	more  chan struct{} // Closed, and replaced, when there are more spans. Guarded by mu.
}

// Start listens on a free port of 127.0.0.1 until Close.
func Start() (*Collector, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{
		listener: listener, server: grpc.NewServer(), served: make(chan error, 1), more: make(chan struct{}),
	}
	collectorv1.RegisterTraceServiceServer(c.server, receiver{collector: c})
	go func() { c.served <- c.server.Serve(listener) }()
	return c, nil
}

// Endpoint returns the value for --tracing-endpoint, with --tracing-insecure=true.
func (c *Collector) Endpoint() string { return c.listener.Addr().String() }

// Close stops the collector. Senders of spans get no answers after that.
func (c *Collector) Close() error {
	c.server.Stop()
	if err := <-c.served; !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil // It had not begun to serve.
}

// Spans returns the received spans in the order of arrival.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Wait calls missing with all spans each time more arrive, until it returns nil. If ctx ends first, the error contains
// the last error of missing. Senders collect spans for seconds before they send them.
func (c *Collector) Wait(ctx context.Context, missing func([]Span) error) error {
	for {
		c.mu.Lock()
		spans, more := slices.Clone(c.spans), c.more
		c.mu.Unlock()
		err := missing(spans)
		if err == nil {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("%w, of %d spans: %w", ctx.Err(), len(spans), err)
		}
	}
}

func (c *Collector) add(spans []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, spans...)
	close(c.more)
	c.more = make(chan struct{})
}

// receiver is the service that exporters call.
type receiver struct {
	collectorv1.UnimplementedTraceServiceServer
	collector *Collector
}

// Export implements collectorv1.TraceServiceServer.
func (r receiver) Export(
	_ context.Context, request *collectorv1.ExportTraceServiceRequest,
) (*collectorv1.ExportTraceServiceResponse, error) {
	var spans []Span
	for _, resource := range request.GetResourceSpans() {
		spans = append(spans, spansOf(resource)...)
	}
	r.collector.add(spans)
	return &collectorv1.ExportTraceServiceResponse{}, nil
}
