package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// header is the key of W3C Trace Context.
const header = "traceparent"

// Annotation is by which another process goes on with the trace of ctx: a W3C traceparent. "" if there is none, or if
// nobody is to send it.
func Annotation(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[header]
}

// Continue goes on with a trace of another process; ok is false if the annotation is none.
func Continue(ctx context.Context, annotation string) (continued context.Context, ok bool) {
	continued = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{header: annotation})
	return continued, trace.SpanContextFromContext(continued).IsRemote()
}
