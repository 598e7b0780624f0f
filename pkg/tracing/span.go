package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The attributes of spans in addition to OpenTelemetry's conventions.
const (
	// Provider is the id of a provider cluster, VirtualNode the slice of it.
	Provider    = attribute.Key("brokering.provider")
	VirtualNode = attribute.Key("brokering.virtual_node")
	// Policy is the PlacementPolicy of the decision, Score the provider's score, Decision both as text.
	Policy   = attribute.Key("brokering.policy")
	Score    = attribute.Key("brokering.score")
	Decision = attribute.Key("brokering.decision")
	// Consumer is the id of the cluster that the pod is from.
	Consumer = attribute.Key("brokering.consumer")
)

// Pod returns the attributes of a span about a pod: its name and UID, without its content.
func Pod(pod metav1.Object) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("k8s.namespace.name", pod.GetNamespace()),
		attribute.String("k8s.pod.name", pod.GetName()),
		attribute.String("k8s.pod.uid", string(pod.GetUID())),
	}
}

// End ends a span, with an error if there is one. Of an API server's answer only the code is recorded: the rest may
// quote the object, such as its environment variables.
func End(span trace.Span, err error) {
	var answer kerrors.APIStatus
	switch {
	case errors.As(err, &answer):
		code := int(answer.Status().Code)
		span.SetStatus(codes.Error, fmt.Sprintf("%d %s", code, http.StatusText(code)))
	case err != nil:
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// header is the key of W3C Trace Context.
const header = "traceparent"

// Annotation returns the W3C traceparent by which another process continues the trace of ctx; "" if there is none, or
// if it is not sampled.
func Annotation(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[header]
}

// Continue continues a trace of another process; ok is false if the annotation has none.
func Continue(ctx context.Context, annotation string) (continued context.Context, ok bool) {
	continued = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{header: annotation})
	return continued, trace.SpanContextFromContext(continued).IsRemote()
}
