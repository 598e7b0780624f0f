package collector

import (
	"encoding/hex"
	"strconv"
	"time"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Span is a received span.
type Span struct {
	// Service is the sender: service.name of its resource.
	Service, Name string
	// Trace, ID and Parent are in hexadecimal, as in a traceparent. Parent is "" if the span has none.
	Trace, ID, Parent string
	Start, End        time.Time
	// Attributes have text values; numbers are converted.
	Attributes map[string]string
	// Failed is true if the span's status is an error; Problem is its description.
	Failed  bool
	Problem string
	// Links are the other traces that the span links to.
	Links []string
}

func spansOf(resource *tracev1.ResourceSpans) []Span {
	service := textsOf(resource.GetResource().GetAttributes())["service.name"]
	var spans []Span
	for _, scope := range resource.GetScopeSpans() {
		for _, s := range scope.GetSpans() {
			span := Span{
				Service: service, Name: s.GetName(),
				Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()),
				Parent: hex.EncodeToString(s.GetParentSpanId()),
				Start:  time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
				Attributes: textsOf(s.GetAttributes()),
				Failed:     s.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR, Problem: s.GetStatus().GetMessage(),
			}
			for _, link := range s.GetLinks() {
				span.Links = append(span.Links, hex.EncodeToString(link.GetTraceId()))
			}
			spans = append(spans, span)
		}
	}
	return spans
}

func textsOf(attributes []*commonv1.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, a := range attributes {
		switch value := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			texts[a.GetKey()] = value.StringValue
		case *commonv1.AnyValue_IntValue:
			texts[a.GetKey()] = strconv.FormatInt(value.IntValue, 10)
		default:
			texts[a.GetKey()] = a.GetValue().String()
		}
	}
	return texts
}
