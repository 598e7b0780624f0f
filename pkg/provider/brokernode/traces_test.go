package brokernode

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	k8stesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
)

func TestForwardingGoesOnWithTheTraceOfTheAssignment(t *testing.T) {
	const traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, tc := range map[string]struct {
		annotation string
		pod        string
		answer     error
		want       []codes.Code
	}{
		"the ShadowPod is made":      {annotation: traced, pod: "a", want: []codes.Code{codes.Unset}},
		"the provider refuses":       {annotation: traced, pod: "a", answer: exceeded(), want: []codes.Code{codes.Error}},
		"the broker does not trace":  {pod: "a"},
		"the annotation is nonsense": {annotation: "nonsense", pod: "a"},
		"a trace that is not sent":   {annotation: traced[:len(traced)-1] + "0", pod: "a"},
		"the pod has left meanwhile": {annotation: traced, pod: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := assignedPod()
			pod.Name = tc.pod
			if tc.annotation != "" {
				pod.Annotations["brokering.liqo.io/traceparent"] = tc.annotation
			}
			liqo := liqofake.NewSimpleClientset()
			liqo.PrependReactor("create", "shadowpods", func(k8stesting.Action) (bool, runtime.Object, error) {
				return tc.answer != nil, nil, tc.answer
			})
			sent := tracetest.NewInMemoryExporter()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(sent)).Tracer("")
			forwarder := forwarderOf(t, fake.NewClientset(pod))
			forwarder.Tracer = tracer
			lens := forwarder.client(liqo, corev1listers.NewPodLister(indexed(t, pod)).Pods("ns"))
			_, err := lens.OffloadingV1beta1().ShadowPods("ns-home").Create(t.Context(),
				&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
			if tc.pod == "b" {
				require.Error(t, err)
				require.Empty(t, liqo.Actions())
			} else {
				require.Equal(t, tc.answer, err)
				require.Equal(t, "create", liqo.Actions()[0].GetVerb())
			}

			var got []codes.Code
			for _, span := range sent.GetSpans() {
				got = append(got, span.Status.Code)
				require.Equal(t, "forward pod", span.Name)
				require.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.SpanContext.TraceID().String())
				require.Equal(t, "b7ad6b7169203331", span.Parent.SpanID().String())
				require.Equal(t, []attribute.KeyValue{
					attribute.String("k8s.namespace.name", "ns"), attribute.String("k8s.pod.name", "a"),
					attribute.String("k8s.pod.uid", "uid-a"), attribute.String("brokering.provider", "p1"),
					attribute.String("brokering.virtual_node", testView().VirtualNode),
				}, span.Attributes)
			}
			require.Equal(t, tc.want, got)
		})
	}
}
