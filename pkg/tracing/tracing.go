// Package tracing sends spans to an OpenTelemetry collector, and connects the spans of several processes by an
// annotation of their pod. Without a collector no span is made and no annotation is written.
package tracing

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
	"k8s.io/client-go/util/cert"
)

const (
	// sendTimeout bounds one attempt to send, closeTimeout the sending at the end: a process that is being stopped must
	// not wait for a collector that hangs.
	sendTimeout  = 5 * time.Second
	closeTimeout = 3 * time.Second
	// complainEvery is how often the log reports that spans cannot be sent.
	complainEvery = time.Minute
)

// Config configures the collector and the sender of spans.
type Config struct {
	Log logr.Logger
	// Endpoint is HOST:PORT of an OpenTelemetry collector that speaks OTLP over gRPC; "" is none.
	Endpoint string
	// Insecure speaks plaintext. Otherwise the collector's certificate is verified by CAFile, or by the system's roots.
	Insecure bool
	CAFile   string
	// Sampling is the share of the traces begun here that are sent, from 0 to 1.
	Sampling float64
	// Service, Version and Instance identify the sender.
	Service, Version, Instance string
}

// Tracing sends the spans of one process.
type Tracing struct {
	log      logr.Logger
	provider *sdktrace.TracerProvider
	exporter *complaining
}

// Start begins to send spans, in the background, until Close. It does not wait for the collector.
func Start(ctx context.Context, cfg Config) (*Tracing, error) {
	if cfg.Endpoint == "" {
		return &Tracing{}, nil
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(cfg.Endpoint), otlptracegrpc.WithTimeout(sendTimeout)}
	if cfg.Insecure {
		options = append(options, otlptracegrpc.WithInsecure())
	} else {
		verify, err := verification(cfg.CAFile)
		if err != nil {
			return nil, err
		}
		options = append(options, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(verify)))
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry collector %s: %w", cfg.Endpoint, err)
	}
	return newTracing(&complaining{
		SpanExporter: exporter, log: cfg.Log.WithValues("endpoint", cfg.Endpoint), now: rate.Sometimes{Interval: complainEvery},
		ended: make(chan struct{}),
	}, cfg), nil
}

// newTracing returns a Tracing that sends spans by an exporter.
func newTracing(exporter *complaining, cfg Config) *Tracing {
	who := resource.NewSchemaless(
		attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version),
		attribute.String("service.instance.id", cfg.Instance),
	)
	return &Tracing{log: cfg.Log, exporter: exporter, provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(who),
		// A continued trace is sampled as the first process decided.
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.Sampling))),
	)}
}

func verification(caFile string) (*tls.Config, error) {
	verify := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return verify, nil
	}
	var err error
	if verify.RootCAs, err = cert.NewPool(caFile); err != nil {
		return nil, fmt.Errorf("--tracing-ca-file=%s: %w", caFile, err)
	}
	return verify, nil
}

// Tracer makes spans; nil if there is no collector.
func (t *Tracing) Tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer("github.com/capacitorset/liqo-broker-vk")
}

// Close sends the remaining spans, with a timeout. Nothing is sent or logged any more when it returns.
func (t *Tracing) Close() {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Error(err, "Failed to export the last spans")
		// The provider leaves them to be sent, batch by batch. As ctx has ended, the exporter cuts off what it is
		// sending.
		_ = t.exporter.SpanExporter.Shutdown(ctx)
	}
	<-t.exporter.ended
}

// OrNone returns the tracer, or one whose spans go nowhere if it is nil.
func OrNone(tracer trace.Tracer) trace.Tracer {
	if tracer == nil {
		return noop.Tracer{}
	}
	return tracer
}

// complaining logs errors now and then: OpenTelemetry would write each of them to stderr.
type complaining struct {
	sdktrace.SpanExporter
	log logr.Logger
	now rate.Sometimes
	// ended is closed when there is nothing to be sent any more.
	ended chan struct{}
}

func (c *complaining) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := c.SpanExporter.ExportSpans(ctx, spans); err != nil {
		c.now.Do(func() { c.log.Error(err, "Failed to export spans, dropping them", "spans", len(spans)) })
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter: it is called once, after the last spans.
func (c *complaining) Shutdown(ctx context.Context) error {
	defer close(c.ended)
	return c.SpanExporter.Shutdown(ctx)
}
