package pods

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

// The spans of a pod, from its binding to the broker's node until it runs, are one trace for each assignment. No span stays
// open: each is made when it is over, from what is written on the pod. A new leader does not end the traces of an earlier
// one: it cannot distinguish the start of a pod from the restart of a container.
//
//	assign pod       from the binding, or from the eviction elsewhere, until the choice is written
//	├─ decide
//	├─ patch pod     writes the choice, and the annotation by which other processes continue the trace
//	├─ forward pod   by the virtual kubelet: every attempt to create the ShadowPod (pkg/provider/brokernode)
//	└─ start pod     from the assignment until the broker reads that the pod is Running
const (
	spanAssign = "assign pod"
	spanDecide = "decide"
	spanPatch  = "patch pod"
	spanStart  = "start pod"
)

// choice is a provider chosen for a pod, with all that the trace shows of it.
type choice struct {
	pod       *corev1.Pod
	namespace *corev1.Namespace
	policy    *scheduler.Policy
	decision  *scheduler.Decision
	// began and decided are when the decision was begun and made.
	began, decided time.Time
}

func (ch *choice) attributes() []attribute.KeyValue {
	attributes := append(tracing.Pod(ch.pod),
		tracing.Provider.String(ch.decision.Provider), tracing.VirtualNode.String(ch.decision.VirtualNode),
		tracing.Score.Int(ch.decision.Score), tracing.Decision.String(ch.decision.Short()),
		tracing.Consumer.String(placement.ConsumerOf(ch.namespace)))
	if ch.policy != nil {
		attributes = append(attributes, tracing.Policy.String(ch.policy.Name))
	}
	return attributes
}

// startAssignSpan begins the trace of an assignment whose decision is made.
func (c *Controller) startAssignSpan(ctx context.Context, ch *choice) (context.Context, trace.Span) {
	if c.Tracer == nil {
		return tracing.OrNone(nil).Start(ctx, spanAssign)
	}
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(c.waitsSince(ch)),
		trace.WithAttributes(ch.attributes()...),
	}
	if before, ok := tracing.Continue(context.Background(), ch.pod.Annotations[v1alpha1.TraceparentAnnotation]); ok {
		options = append(options, trace.WithLinks(trace.LinkFromContext(before))) // It was assigned elsewhere before.
	}
	ctx, span := c.Tracer.Start(ctx, spanAssign, options...)
	_, decide := c.Tracer.Start(ctx, spanDecide, trace.WithTimestamp(ch.began))
	decide.End(trace.WithTimestamp(ch.decided))
	return ctx, span
}

// waitsSince returns when a pod began to wait for the choice. The API keeps the time of the binding by the second.
func (c *Controller) waitsSince(ch *choice) time.Time {
	since := c.Belief.EvictedAt(ch.pod.UID)
	bound := placement.Condition(ch.pod, corev1.PodScheduled)
	if since.IsZero() && bound != nil && ch.pod.Annotations[v1alpha1.AssignedAtAnnotation] == "" {
		since = bound.LastTransitionTime.Time
	}
	if since.IsZero() || since.After(ch.began) {
		return ch.began
	}
	return since
}

// setTraceparent adds the annotation by which other processes continue the trace, or removes that of an earlier trace.
func setTraceparent(ctx context.Context, pod *corev1.Pod, annotations map[string]any) {
	if carried := tracing.Annotation(ctx); carried != "" {
		annotations[v1alpha1.TraceparentAnnotation] = carried
	} else if pod.Annotations[v1alpha1.TraceparentAnnotation] != "" {
		annotations[v1alpha1.TraceparentAnnotation] = nil
	}
}

// patchPodTraced is patchPod with a span.
func (c *Controller) patchPodTraced(ctx context.Context, pod *corev1.Pod, metadata map[string]any) error {
	ctx, span := tracing.OrNone(c.Tracer).Start(ctx, spanPatch)
	err := c.write.Patch(ctx, pod, metadata)
	tracing.End(span, err)
	return err
}

// traceStart makes, once, the span of the start of a pod that is Running.
func (c *Controller) traceStart(ctx context.Context, pod *corev1.Pod, virtualNode string) {
	if c.Tracer == nil || pod.Status.Phase != corev1.PodRunning || !c.assignedByThisLeader(pod) {
		return
	}
	ctx, ok := tracing.Continue(ctx, pod.Annotations[v1alpha1.TraceparentAnnotation])
	if !ok || !c.Belief.ObserveRunning(pod) {
		return
	}
	_, span := c.Tracer.Start(ctx, spanStart, trace.WithTimestamp(v1alpha1.AssignedAt(pod)),
		trace.WithAttributes(append(tracing.Pod(pod), tracing.VirtualNode.String(virtualNode),
			tracing.Provider.String(pod.Labels[v1alpha1.ProviderLabel]))...))
	span.End(trace.WithTimestamp(c.Clock.Now()))
}
