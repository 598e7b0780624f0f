package tracing

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// collector is an OpenTelemetry collector, which keeps the spans that it receives.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	received chan *tracev1.ResourceSpans
}

func (c *collector) Export(
	_ context.Context, request *collectorv1.ExportTraceServiceRequest,
) (*collectorv1.ExportTraceServiceResponse, error) {
	for _, spans := range request.GetResourceSpans() {
		c.received <- spans
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// serve starts a collector, and returns its address.
func serve(t *testing.T, options ...grpc.ServerOption) (*collector, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &collector{received: make(chan *tracev1.ResourceSpans, 10)}
	server := grpc.NewServer(options...)
	collectorv1.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	return c, ln.Addr().String()
}

func start(t *testing.T, cfg Config) *Tracing {
	t.Helper()
	cfg.Log, cfg.Service, cfg.Version, cfg.Instance = testr.New(t), "liqo-broker", "v1", "broker-0"
	spans, err := Start(t.Context(), cfg)
	require.NoError(t, err)
	return spans
}

func TestSpansReachTheCollectorAtTheEnd(t *testing.T) {
	c, address := serve(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	spans := start(t, Config{Endpoint: address, Insecure: true, Sampling: 1})
	_, span := spans.Tracer().Start(t.Context(), "assign pod")
	span.End()
	spans.Close()

	got := <-c.received
	require.Equal(t, "assign pod", got.GetScopeSpans()[0].GetSpans()[0].GetName())
	who := map[string]string{}
	for _, attribute := range got.GetResource().GetAttributes() {
		who[attribute.GetKey()] = attribute.GetValue().GetStringValue()
	}
	require.Equal(t, map[string]string{
		"service.name": "liqo-broker", "service.version": "v1", "service.instance.id": "broker-0",
	}, who)
}

func TestTheCollectorIsVerified(t *testing.T) {
	known := httptest.NewUnstartedServer(nil)
	known.StartTLS()
	defer known.Close()
	c, address := serve(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: known.TLS.Certificates})))
	file := filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: known.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, ca, 0o600))

	spans := start(t, Config{Endpoint: address, CAFile: file, Sampling: 1})
	_, span := spans.Tracer().Start(t.Context(), "trusted")
	span.End()
	spans.Close()
	require.Equal(t, "trusted", (<-c.received).GetScopeSpans()[0].GetSpans()[0].GetName())

	var lines []string
	stranger, err := Start(t.Context(), Config{
		Endpoint: address, Sampling: 1,
		Log: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}),
	})
	require.NoError(t, err)
	_, span = stranger.Tracer().Start(t.Context(), "untrusted")
	span.End()
	stranger.Close()
	require.Empty(t, c.received)
	require.NotEmpty(t, lines, "it is logged")

	_, err = Start(t.Context(), Config{Endpoint: address, CAFile: file + ".none"})
	require.ErrorContains(t, err, "--tracing-ca-file")
	require.NoError(t, os.WriteFile(file, []byte("paper"), 0o600))
	_, err = Start(t.Context(), Config{Endpoint: address, CAFile: file})
	require.ErrorContains(t, err, "does not contain any valid")
}

// A shutdown does not wait for a collector that hangs.
func TestACollectorThatHangsDelaysNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // It accepts, and never answers.
	require.NoError(t, err)
	defer ln.Close()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	spans := start(t, Config{Endpoint: ln.Addr().String(), Insecure: true, Sampling: 1})
	began := time.Now()
	for range 5000 { // More than are kept.
		_, span := spans.Tracer().Start(t.Context(), "lost")
		span.End()
	}
	require.Less(t, time.Since(began), 2*time.Second)
	closing := time.Now()
	spans.Close()
	require.Less(t, time.Since(closing), closeTimeout+2*time.Second)
}

func TestWithoutACollectorThereIsNoTracer(t *testing.T) {
	spans := start(t, Config{})
	require.Nil(t, spans.Tracer())
	_, span := OrNone(spans.Tracer()).Start(t.Context(), "nothing")
	require.False(t, span.IsRecording())
	spans.Close()
}

func TestAnotherProcessGoesOnWithATraceThatIsSent(t *testing.T) {
	c, address := serve(t)
	for name, tc := range map[string]struct {
		sampling float64
		carried  bool
	}{"all are sent": {1, true}, "none is sent": {0, false}} {
		t.Run(name, func(t *testing.T) {
			broker := start(t, Config{Endpoint: address, Insecure: true, Sampling: tc.sampling})
			defer broker.Close()
			ctx, span := broker.Tracer().Start(t.Context(), "assign pod")
			carried := Annotation(ctx)
			require.Equal(t, tc.carried, carried != "", carried)
			if !tc.carried {
				return
			}
			require.Regexp(t, `^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`, carried)

			// Regardless of its own sampling.
			kubelet := start(t, Config{Endpoint: address, Insecure: true, Sampling: 0})
			ctx, ok := Continue(t.Context(), carried)
			require.True(t, ok)
			_, forward := kubelet.Tracer().Start(ctx, "forward pod")
			forward.End()
			kubelet.Close()
			got := (<-c.received).GetScopeSpans()[0].GetSpans()[0]
			id, parent := span.SpanContext().TraceID(), span.SpanContext().SpanID()
			require.Equal(t, id[:], got.GetTraceId())
			require.Equal(t, parent[:], got.GetParentSpanId())
		})
	}
	for _, nonsense := range []string{"", "00-0-0-01", "nonsense"} {
		ctx, ok := Continue(t.Context(), nonsense)
		require.False(t, ok)
		require.False(t, trace.SpanContextFromContext(ctx).IsValid())
	}
	require.Empty(t, Annotation(t.Context()))
}
