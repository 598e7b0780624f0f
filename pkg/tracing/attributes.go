package tracing

import (
	"errors"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The attributes of spans besides those of OpenTelemetry's conventions.
const (
	// Provider is the id of a provider cluster, VirtualNode the slice of it.
	Provider    = attribute.Key("brokering.provider")
	VirtualNode = attribute.Key("brokering.virtual_node")
	// Policy is the PlacementPolicy that counted, Score what the provider was given by it, Decision both in words.
	Policy   = attribute.Key("brokering.policy")
	Score    = attribute.Key("brokering.score")
	Decision = attribute.Key("brokering.decision")
	// Consumer is the id of the cluster that the pod is from.
	Consumer = attribute.Key("brokering.consumer")
)

// Pod says which pod a span is about: its name, and nothing of what is in it.
func Pod(pod metav1.Object) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("k8s.namespace.name", pod.GetNamespace()),
		attribute.String("k8s.pod.name", pod.GetName()),
		attribute.String("k8s.pod.uid", string(pod.GetUID())),
	}
}

// End ends a span, with an error if there is one. Of what an API server answered only the code is told: the rest may quote
// the object, its environment variables for one.
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
