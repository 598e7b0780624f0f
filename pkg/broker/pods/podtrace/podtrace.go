// Package podtrace makes the spans of a pod's assignment.
package podtrace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/tracing"
)

// The spans of a pod, from its binding to the broker's node until it runs, are one trace for each assignment. No span
// stays open: each is made when it is over, from the timestamps on the pod. A new leader does not end the traces of an
// earlier one: it cannot distinguish the start of a pod from the restart of a container.
//
//	assign pod       from the binding, or from the eviction elsewhere, until the choice is written
//	├─ decide
//	├─ patch pod     writes the choice, and the annotation by which other processes continue the trace
//	├─ forward pod   by the virtual kubelet: every attempt to create the ShadowPod (pkg/provider/brokernode)
//	└─ start pod     from the assignment until the broker reads that the pod is Running
const (
	spanAssign = "assign pod"
	spanDecide = "decide"
	// SpanPatch is of the request that writes the choice.
	SpanPatch = "patch pod"
	spanStart = "start pod"
)

// Choice is a provider chosen for a pod, with all that the trace shows of it.
type Choice struct {
	Pod       *corev1.Pod
	Namespace *corev1.Namespace
	Policy    *scheduler.Policy
	Decision  *scheduler.Decision
	// EvictedAt is when the pod was evicted from another provider; zero if it was not.
	EvictedAt time.Time
	// Began and Decided are when the decision was begun and made.
	Began, Decided time.Time
}

func (ch *Choice) attributes() []attribute.KeyValue {
	attributes := append(tracing.Pod(ch.Pod),
		tracing.Provider.String(ch.Decision.Provider), tracing.VirtualNode.String(ch.Decision.VirtualNode),
		tracing.Score.Int(ch.Decision.Score), tracing.Decision.String(ch.Decision.Short()),
		tracing.Consumer.String(placement.ConsumerOf(ch.Namespace)))
	if ch.Policy != nil {
		attributes = append(attributes, tracing.Policy.String(ch.Policy.Name))
	}
	return attributes
}

// Assign begins the trace of an assignment whose decision is made. A nil tracer does not trace.
func Assign(ctx context.Context, tracer trace.Tracer, ch *Choice) (context.Context, trace.Span) {
	if tracer == nil {
		return tracing.OrNone(nil).Start(ctx, spanAssign)
	}
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(ch.waitsSince()),
		trace.WithAttributes(ch.attributes()...),
	}
	if before, ok := tracing.Continue(context.Background(), ch.Pod.Annotations[v1alpha1.TraceparentAnnotation]); ok {
		options = append(options, trace.WithLinks(trace.LinkFromContext(before))) // It was assigned elsewhere before.
	}
	ctx, span := tracer.Start(ctx, spanAssign, options...)
	_, decide := tracer.Start(ctx, spanDecide, trace.WithTimestamp(ch.Began))
	decide.End(trace.WithTimestamp(ch.Decided))
	return ctx, span
}

// waitsSince returns when a pod began to wait for the choice. The API keeps the time of the binding by the second.
func (ch *Choice) waitsSince() time.Time {
	since := ch.EvictedAt
	bound := placement.Condition(ch.Pod, corev1.PodScheduled)
	if since.IsZero() && bound != nil && ch.Pod.Annotations[v1alpha1.AssignedAtAnnotation] == "" {
		since = bound.LastTransitionTime.Time
	}
	if since.IsZero() || since.After(ch.Began) {
		return ch.Began
	}
	return since
}

// SetTraceparent adds the annotation by which other processes continue the trace, or removes an earlier trace's
// annotation.
func SetTraceparent(ctx context.Context, pod *corev1.Pod, annotations map[string]any) {
	if carried := tracing.Annotation(ctx); carried != "" {
		annotations[v1alpha1.TraceparentAnnotation] = carried
	} else if pod.Annotations[v1alpha1.TraceparentAnnotation] != "" {
		annotations[v1alpha1.TraceparentAnnotation] = nil
	}
}

// Start makes the span of the start of a pod that is Running, in the trace that ctx continues.
func Start(ctx context.Context, tracer trace.Tracer, pod *corev1.Pod, virtualNode string, now time.Time) {
	_, span := tracer.Start(ctx, spanStart, trace.WithTimestamp(v1alpha1.AssignedAt(pod)),
		trace.WithAttributes(append(tracing.Pod(pod), tracing.VirtualNode.String(virtualNode),
			tracing.Provider.String(pod.Labels[v1alpha1.ProviderLabel]))...))
	span.End(trace.WithTimestamp(now))
}
