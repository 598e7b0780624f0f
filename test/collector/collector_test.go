package collector

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/capacitorset/liqo-broker-vk/pkg/tracing"
)

func start(t *testing.T) *Collector {
	t.Helper()
	c, err := Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// process returns the tracer of a process of that name, and a function that ends it and sends its spans, with the same
// code as the real process.
func process(t *testing.T, c *Collector, service string) (trace.Tracer, func()) {
	t.Helper()
	spans, err := tracing.Start(t.Context(), tracing.Config{
		Log: testr.New(t), Endpoint: c.Endpoint(), Insecure: true, Sampling: 1,
		Service: service, Version: "v1", Instance: "0",
	})
	require.NoError(t, err)
	return spans.Tracer(), spans.Close
}

func TestTheWayOfAPodIsSeen(t *testing.T) {
	c := start(t)
	broker, brokerEnds := process(t, c, "liqo-broker")
	kubelet, kubeletEnds := process(t, c, "liqo-virtual-kubelet")

	assigned, root := broker.Start(t.Context(), "assign pod",
		trace.WithAttributes(tracing.Score.Int(83), tracing.Provider.String("p1")))
	for _, name := range []string{"decide", "patch pod"} {
		_, span := broker.Start(assigned, name)
		span.End()
	}
	annotation := tracing.Annotation(assigned)
	root.End()

	forwarded, ok := tracing.Continue(t.Context(), annotation)
	require.True(t, ok)
	for _, err := range []error{errors.New("the quota is exceeded"), nil} {
		_, span := kubelet.Start(forwarded, "forward pod")
		tracing.End(span, err)
	}
	kubeletEnds()
	require.ErrorContains(t, Way(annotation)(c.Spans()), "no span assign pod of liqo-broker at its root")

	waited := make(chan error, 1)
	go func() { waited <- c.Wait(t.Context(), Way(annotation)) }()
	_, span := broker.Start(forwarded, "start pod")
	span.End()
	brokerEnds()
	require.NoError(t, <-waited)

	spans := c.Spans()
	require.Len(t, spans, 6)
	require.Equal(t, "forward pod", spans[0].Name)
	require.True(t, spans[0].Failed)
	require.Equal(t, "the quota is exceeded", spans[0].Problem)
	for _, span := range spans {
		if span.Name == "assign pod" {
			require.Equal(t, map[string]string{"brokering.score": "83", "brokering.provider": "p1"}, span.Attributes)
			require.WithinDuration(t, time.Now(), span.End, time.Minute)
		}
	}
}

func TestWhatTheWayOfAPodLacksIsSaid(t *testing.T) {
	const (
		trace      = "0af7651916cd43dd8448eb211c80319c"
		root       = "b7ad6b7169203331"
		annotation = "00-" + trace + "-" + root + "-01"
	)
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	child := func(name, service string, second int64) Span {
		return Span{Service: service, Name: name, Trace: trace, ID: name, Parent: root, Start: at(second), End: at(second + 1)}
	}
	const forward = 3
	whole := func() []Span {
		return []Span{
			{Service: "liqo-broker", Name: "assign pod", Trace: trace, ID: root, Start: at(1), End: at(3)},
			child("decide", "liqo-broker", 1), child("patch pod", "liqo-broker", 2),
			child("forward pod", "liqo-virtual-kubelet", 4), child("start pod", "liqo-broker", 3),
		}
	}
	for name, tc := range map[string]struct {
		annotation string
		change     func([]Span) []Span
		want       string
	}{
		"nothing":              {annotation, func(s []Span) []Span { return s }, ""},
		"the annotation":       {"", func(s []Span) []Span { return s }, "is not the traceparent"},
		"a trace that is sent": {annotation[:len(annotation)-1] + "0", func(s []Span) []Span { return s }, "is not the traceparent"},
		"the root":             {annotation, func(s []Span) []Span { return s[1:] }, "no span assign pod of liqo-broker at its root"},
		"the root has a parent": {annotation, func(s []Span) []Span {
			s[0].Parent = "c7ad6b7169203331"
			return s
		}, "no span assign pod of liqo-broker at its root"},
		"another process": {annotation, func(s []Span) []Span { return s[:forward] }, "no span forward pod of liqo-virtual-kubelet"},
		"an attempt that was not refused": {annotation, func(s []Span) []Span {
			s[forward].Failed = true
			return s
		}, "no span forward pod"},
		"the same trace": {annotation, func(s []Span) []Span {
			s[forward].Trace = "1af7651916cd43dd8448eb211c80319c"
			return s
		}, "no span forward pod"},
		"the right order": {annotation, func(s []Span) []Span {
			s[forward].End = at(0)
			return s
		}, "forward pod is over before patch pod begins"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Way(tc.annotation)(tc.change(whole()))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestTheErrorOfWaitHasWhatWasMissingLast(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := start(t).Wait(ctx, func(spans []Span) error {
		require.Empty(t, spans)
		return errors.New("no span at all")
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "of 0 spans: no span at all")
}
