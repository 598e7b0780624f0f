package brokernode

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/tracing"
)

// spanForward is every attempt to make the ShadowPod of a pod.
const spanForward = "forward pod"

// Traces goes on with the traces that the broker began (v1alpha1.TraceparentAnnotation).
type Traces struct {
	View View
	// Provider is the id of the provider cluster.
	Provider string
	Tracer   trace.Tracer
}

// ShadowPods returns a client that traces how ShadowPods of local pods are made.
func (t Traces) ShadowPods(client liqoclient.Interface, pods corev1listers.PodNamespaceLister) liqoclient.Interface {
	return tracedLiqo{Interface: client, traces: t, pods: pods}
}

type tracedLiqo struct {
	liqoclient.Interface
	traces Traces
	pods   corev1listers.PodNamespaceLister
}

func (l tracedLiqo) OffloadingV1beta1() offloadingclient.OffloadingV1beta1Interface {
	return tracedGroup{OffloadingV1beta1Interface: l.Interface.OffloadingV1beta1(), liqo: l}
}

type tracedGroup struct {
	offloadingclient.OffloadingV1beta1Interface
	liqo tracedLiqo
}

func (g tracedGroup) ShadowPods(namespace string) offloadingclient.ShadowPodInterface {
	return tracedShadowPods{ShadowPodInterface: g.OffloadingV1beta1Interface.ShadowPods(namespace), liqo: g.liqo}
}

type tracedShadowPods struct {
	offloadingclient.ShadowPodInterface
	liqo tracedLiqo
}

func (s tracedShadowPods) Create(ctx context.Context, shadow *offloadingv1beta1.ShadowPod,
	opts metav1.CreateOptions,
) (*offloadingv1beta1.ShadowPod, error) {
	pod, err := s.liqo.pods.Get(shadow.Name)
	if err != nil {
		return s.ShadowPodInterface.Create(ctx, shadow, opts) // It has left meanwhile.
	}
	ctx, traced := tracing.Continue(ctx, pod.Annotations[v1alpha1.TraceparentAnnotation])
	if !traced {
		return s.ShadowPodInterface.Create(ctx, shadow, opts)
	}
	ctx, span := s.liqo.traces.Tracer.Start(ctx, spanForward, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append(tracing.Pod(pod), tracing.Provider.String(s.liqo.traces.Provider),
			tracing.VirtualNode.String(s.liqo.traces.View.VirtualNode))...))
	created, err := s.ShadowPodInterface.Create(ctx, shadow, opts)
	tracing.End(span, err)
	return created, err
}
