package pods

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// traced is a controller whose spans are kept.
func traced(t *testing.T, sampling float64, funcs interceptor.Funcs, objects ...client.Object) (*Controller, *tracetest.InMemoryExporter) {
	t.Helper()
	sent := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(sent), sdktrace.WithSampler(sdktrace.TraceIDRatioBased(sampling)))
	policy := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}}
	c := newController(t, true, funcs, provider.Tracer(""), append(objects, policy)...)
	c.leadsSince(t, noon)
	return c, sent
}

// boundPod waits for a provider since a minute ago.
func boundPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}}}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second)),
		}}},
	}
}

func (c *Controller) read(t *testing.T) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "web"}, &pod))
	return &pod
}

func byName(spans tracetest.SpanStubs) map[string]tracetest.SpanStub {
	found := map[string]tracetest.SpanStub{}
	for _, span := range spans {
		found[span.Name] = span
	}
	return found
}

func attributesOf(span tracetest.SpanStub) map[attribute.Key]string {
	found := map[attribute.Key]string{}
	for _, a := range span.Attributes {
		found[a.Key] = a.Value.Emit()
	}
	return found
}

func TestAnAssignmentIsOneTrace(t *testing.T) {
	pod := boundPod()
	c, sent := traced(t, 1, interceptor.Funcs{}, pod)
	_, err := c.assign(t.Context(), c.read(t))
	require.NoError(t, err)

	assigned := c.read(t)
	spans := byName(sent.GetSpans())
	require.Len(t, spans, 3)
	root := spans["assign pod"]
	require.False(t, root.Parent.IsValid())
	require.True(t, root.StartTime.Equal(pod.Status.Conditions[0].LastTransitionTime.Time), "it begins with the binding")
	for _, part := range []string{"decide", "patch pod"} {
		require.Equal(t, root.SpanContext.SpanID(), spans[part].Parent.SpanID(), part)
		require.False(t, spans[part].EndTime.After(root.EndTime), part)
	}
	require.False(t, spans["decide"].EndTime.After(spans["patch pod"].StartTime))
	require.Equal(t, "00-"+root.SpanContext.TraceID().String()+"-"+root.SpanContext.SpanID().String()+"-01",
		assigned.Annotations["brokering.liqo.io/traceparent"])
	require.Equal(t, map[attribute.Key]string{
		"k8s.namespace.name": "ns", "k8s.pod.name": "web", "k8s.pod.uid": "uid", "brokering.provider": "q",
		"brokering.virtual_node": "q1", "brokering.policy": "gold", "brokering.consumer": "c1",
		"brokering.score": attributesOf(root)["brokering.score"], "brokering.decision": assigned.Annotations["brokering.liqo.io/decision"],
	}, attributesOf(root), "and nothing of what is in the pod")

	// It runs.
	sent.Reset()
	c.traceStart(t.Context(), assigned, "q1")
	require.Empty(t, sent.GetSpans(), "it is Pending")
	assigned.Status.Phase = corev1.PodRunning
	next, _ := traced(t, 1, interceptor.Funcs{})
	next.leadsSince(t, time.Now())
	next.traceStart(t.Context(), assigned, "q1")
	require.Empty(t, sent.GetSpans(), "it may have run long before another broker took over")
	c.traceStart(t.Context(), assigned, "q1")
	c.traceStart(t.Context(), assigned, "q1")
	require.Len(t, sent.GetSpans(), 1, "once")
	start := sent.GetSpans()[0]
	require.Equal(t, "start pod", start.Name)
	require.Equal(t, root.SpanContext.TraceID(), start.SpanContext.TraceID())
	require.Equal(t, root.SpanContext.SpanID(), start.Parent.SpanID())
	require.True(t, start.StartTime.Equal(v1alpha1.AssignedAt(assigned)))
}

func TestTheTraceOfAMoveNamesTheOneBefore(t *testing.T) {
	pod := boundPod()
	pod.Annotations = map[string]string{
		"brokering.liqo.io/traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"brokering.liqo.io/assigned-at": noon.Format(time.RFC3339Nano),
	}
	c, sent := traced(t, 1, interceptor.Funcs{}, pod)
	c.State.ObserveEvicted(pod, placed("gone"))
	evicted := c.State.Pod(pod.UID).EvictedAt
	_, err := c.assign(t.Context(), c.read(t))
	require.NoError(t, err)
	root := byName(sent.GetSpans())["assign pod"]
	require.True(t, root.StartTime.Equal(evicted), "it begins with the eviction")
	require.NotEqual(t, "0af7651916cd43dd8448eb211c80319c", root.SpanContext.TraceID().String())
	require.Len(t, root.Links, 1)
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", root.Links[0].SpanContext.TraceID().String())
	require.Contains(t, c.read(t).Annotations["brokering.liqo.io/traceparent"], root.SpanContext.TraceID().String())
}

// Until the next provider reports, the pod has the status from where it was before.
func TestAMovedPodStartsWhenTheNextProviderReportsIt(t *testing.T) {
	pod := boundPod()
	pod.Status.Phase = corev1.PodRunning
	runsSince := func(at time.Time) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)},
		}}}
	}
	pod.Status.ContainerStatuses = runsSince(noon)
	c, sent := traced(t, 1, interceptor.Funcs{}, pod)
	c.State.ObserveEvicted(pod, placed("gone"))
	_, err := c.assign(t.Context(), c.read(t))
	require.NoError(t, err)
	moved := c.read(t)
	sent.Reset()
	c.traceStart(t.Context(), moved, "q1")
	require.Empty(t, sent.GetSpans())

	// The clock there is behind.
	moved.Status.ContainerStatuses = runsSince(noon.Add(-time.Minute))
	c.traceStart(t.Context(), moved, "q1")
	require.Len(t, sent.GetSpans(), 1)
	moved.Status.ContainerStatuses = runsSince(noon.Add(time.Minute))
	c.traceStart(t.Context(), moved, "q1")
	require.Len(t, sent.GetSpans(), 1, "a container has started anew")
}

func TestATraceThatIsNotSentIsNotOnThePod(t *testing.T) {
	for name, change := range map[string]func(*Controller){
		"it is not sampled": func(*Controller) {},
		"nothing is traced": func(c *Controller) { c.Tracer = nil },
	} {
		t.Run(name, func(t *testing.T) {
			pod := boundPod()
			pod.Annotations = map[string]string{"brokering.liqo.io/traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
			c, sent := traced(t, 0, interceptor.Funcs{}, pod)
			change(c)
			_, err := c.assign(t.Context(), c.read(t))
			require.NoError(t, err)
			require.NotContains(t, c.read(t).Annotations, "brokering.liqo.io/traceparent", "that of an earlier assignment goes")
			require.Equal(t, "q1", c.read(t).Labels["brokering.liqo.io/virtual-node"])
			c.traceStart(t.Context(), c.read(t), "q1")
			require.Empty(t, sent.GetSpans())
		})
	}
}

func TestAnAssignmentThatCannotBeWrittenIsAnErrorInItsTrace(t *testing.T) {
	c, sent := traced(t, 1, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("the API server is away")
		},
	}, boundPod())
	_, err := c.assign(t.Context(), c.read(t))
	require.Error(t, err)
	spans := byName(sent.GetSpans())
	require.Equal(t, codes.Error, spans["assign pod"].Status.Code)
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "the API server is away"}, spans["patch pod"].Status)
}

func TestSpansDoNotQuoteWhatAnAPIServerAnswers(t *testing.T) {
	c, sent := traced(t, 1, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return kerrors.NewBadRequest("secret is not nice")
		},
	}, boundPod())
	_, err := c.assign(t.Context(), c.read(t))
	require.ErrorContains(t, err, "secret")
	for _, name := range []string{"assign pod", "patch pod"} {
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "400 Bad Request"}, byName(sent.GetSpans())[name].Status)
	}
}
