package broker

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

// The spans of a pod's way from its binding to the broker's node until it runs are one trace for each assignment. None of
// them stays open: each is made when it is over, from what is written on the pod. A new leader does not end the ways that
// an earlier one began: it cannot tell the start of a pod from that of a container which crashed.
//
//	assign pod       from the binding, or from being taken away elsewhere, until the choice is written
//	├─ decide
//	├─ patch pod     writes the choice, and the annotation by which others go on with the trace
//	├─ forward pod   by the virtual kubelet: every attempt to make the ShadowPod (pkg/provider/brokernode)
//	└─ start pod     from the assignment until the broker sees it Running
const (
	spanAssign = "assign pod"
	spanDecide = "decide"
	spanPatch  = "patch pod"
	spanStart  = "start pod"
)

// choice is a provider chosen for a pod, and how.
type choice struct {
	pod       *corev1.Pod
	namespace *corev1.Namespace
	policy    *scheduler.Policy
	decision  *scheduler.Decision
	// began and decided are when the decision was begun and made.
	began, decided time.Time
}

func (c *choice) attributes() []attribute.KeyValue {
	attributes := append(tracing.Pod(c.pod),
		tracing.Provider.String(c.decision.Provider), tracing.VirtualNode.String(c.decision.VirtualNode),
		tracing.Score.Int(c.decision.Score), tracing.Decision.String(c.decision.Short()),
		tracing.Consumer.String(placement.ConsumerOf(c.namespace)))
	if c.policy != nil {
		attributes = append(attributes, tracing.Policy.String(c.policy.Name))
	}
	return attributes
}

// traceChoice begins the trace of an assignment, in which the decision is past.
func (b *Broker) traceChoice(ctx context.Context, c *choice) (context.Context, trace.Span) {
	if b.tracer == nil {
		return tracing.OrNone(nil).Start(ctx, spanAssign)
	}
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(b.waitsSince(c)),
		trace.WithAttributes(c.attributes()...),
	}
	if before, ok := tracing.Continue(context.Background(), c.pod.Annotations[v1alpha1.TraceparentAnnotation]); ok {
		options = append(options, trace.WithLinks(trace.LinkFromContext(before))) // It was somewhere else before.
	}
	ctx, span := b.tracer.Start(ctx, spanAssign, options...)
	_, decide := b.tracer.Start(ctx, spanDecide, trace.WithTimestamp(c.began))
	decide.End(trace.WithTimestamp(c.decided))
	return ctx, span
}

// waitsSince is since when a pod has waited for the choice. The API keeps the time of the binding by the second.
func (b *Broker) waitsSince(c *choice) time.Time {
	since := b.core.sentAwayAt(c.pod.UID)
	bound := podCondition(c.pod, corev1.PodScheduled)
	if since.IsZero() && bound != nil && c.pod.Annotations[v1alpha1.AssignedAtAnnotation] == "" {
		since = bound.LastTransitionTime.Time
	}
	if since.IsZero() || since.After(c.began) {
		return c.began
	}
	return since
}

// carry adds to the annotations of a pod by what others go on with its trace, or takes that of an earlier one away.
func carry(ctx context.Context, pod *corev1.Pod, annotations map[string]any) {
	if carried := tracing.Annotation(ctx); carried != "" {
		annotations[v1alpha1.TraceparentAnnotation] = carried
	} else if pod.Annotations[v1alpha1.TraceparentAnnotation] != "" {
		annotations[v1alpha1.TraceparentAnnotation] = nil
	}
}

// patchTraced is patchPod, as a part of a trace.
func (b *Broker) patchTraced(ctx context.Context, pod *corev1.Pod, metadata map[string]any) error {
	ctx, span := tracing.OrNone(b.tracer).Start(ctx, spanPatch)
	err := b.patchPod(ctx, pod, metadata)
	tracing.End(span, err)
	return err
}

// traceStart ends the way of a pod that runs, once.
func (b *Broker) traceStart(ctx context.Context, pod *corev1.Pod, virtualNode string) {
	if b.tracer == nil || pod.Status.Phase != corev1.PodRunning || !b.isOurs(pod) {
		return
	}
	ctx, ok := tracing.Continue(ctx, pod.Annotations[v1alpha1.TraceparentAnnotation])
	if !ok || !b.core.firstSeenRunning(pod) {
		return
	}
	_, span := b.tracer.Start(ctx, spanStart, trace.WithTimestamp(assignedAt(pod)),
		trace.WithAttributes(append(tracing.Pod(pod), tracing.VirtualNode.String(virtualNode),
			tracing.Provider.String(pod.Labels[v1alpha1.ProviderLabel]))...))
	span.End(trace.WithTimestamp(b.now()))
}
