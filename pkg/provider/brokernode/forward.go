package brokernode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	"github.com/liqotech/liqo/pkg/client/clientset/versioned/scheme"
	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
	"github.com/capacitorset/liqo-broker-vk/pkg/tracing"
)

// Forwarder forwards the pods of the view to the provider cluster, and reports the ones that the provider cluster
// rejects.
type Forwarder struct {
	View View
	// Tracer continues the traces that the broker started (v1alpha1.TraceparentAnnotation); nil disables tracing.
	Tracer trace.Tracer
	// Pods and Clock are used to write the rejections; Refused is called with the reason of each one that was written.
	Pods    func(namespace string) corev1client.PodInterface
	Clock   clock.PassiveClock
	Refused func(reason string)
	Log     logr.Logger

	mu sync.Mutex
	// releases by local namespace; guarded by mu.
	releases map[string]*releases
}

// Forward returns Liqo's pod reflector of a namespace with a client that creates ShadowPods with create.
func (f *Forwarder) Forward(local func(namespace string) corev1listers.PodNamespaceLister,
	next generic.NamespacedReflectorFactoryFunc,
) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		seen := *opts
		seen.RemoteLiqoClient = f.client(opts.RemoteLiqoClient, local(opts.LocalNamespace))
		return next(&seen)
	}
}

// create creates the ShadowPod of a local pod. Liqo gets the errors, records them as events, and retries.
func (f *Forwarder) create(ctx context.Context, pods corev1listers.PodNamespaceLister,
	shadows timely, shadow *offloadingv1beta1.ShadowPod, opts metav1.CreateOptions,
) (*offloadingv1beta1.ShadowPod, error) {
	if !f.View.ForwardTokens {
		shadow = withoutTokens(shadow)
	}
	spread := *shadow
	spread.Spec.Pod.TopologySpreadConstraints = constraints.WithinProvider(shadow.Spec.Pod.TopologySpreadConstraints)
	shadow = &spread
	pod, err := pods.Get(shadow.Name)
	if err != nil {
		return nil, fmt.Errorf("pod %s is no longer assigned to VirtualNode %s: %w", shadow.Name, f.View.VirtualNode, err)
	}
	shadows.ready = func(ctx context.Context) error { return f.stillAssigned(ctx, pod) }
	ctx, end := f.trace(ctx, pod)
	created, err := shadows.Create(ctx, transform.WithPodUID(shadow, pod.UID), opts)
	// If the creation was not sent, the error may come from this cluster's own API server: that is no rejection by the
	// provider.
	switch {
	case !kerrors.IsForbidden(err) || errors.Is(err, errUnsent):
	case mayHave(ctx, shadows, shadow.Name):
		f.releasesOf(pod.Namespace).observeThere(pod.Name)
	default:
		if failed := f.report(ctx, pod, refusalOf(err)); failed != nil {
			f.Log.Error(failed, "Cannot report the provider's rejection of a pod to the broker", "rejection", err.Error())
		}
	}
	end(err)
	f.releasesOf(pod.Namespace).observeCreate(pod.Name, err)
	return created, err
}

// errUnsent means that the creation of a ShadowPod was not sent.
var errUnsent = errors.New("not forwarded")

// errMoved means that the cache of local pods lags: Liqo handles the pod again when the cache catches up.
var errMoved = errors.New("it has been assigned elsewhere, or deleted")

// stillAssigned asks the API server whether a pod is still assigned as in the cache, which may lag by any time.
func (f *Forwarder) stillAssigned(ctx context.Context, cached *corev1.Pod) error {
	live, err := f.Pods(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	if err == nil && (live.UID != cached.UID || live.Labels[v1alpha1.VirtualNodeLabel] != f.View.VirtualNode ||
		v1alpha1.Assignment(f.View.VirtualNode, live) != v1alpha1.Assignment(f.View.VirtualNode, cached)) {
		err = errMoved
	}
	if err != nil {
		return fmt.Errorf("pod %s at VirtualNode %s: %w", cached.Name, f.View.VirtualNode, err)
	}
	return nil
}

// spanForward is one attempt to create the ShadowPod of a pod.
const spanForward = "forward pod"

// trace starts the span of an attempt, if the broker traces the pod. The returned function ends the span.
func (f *Forwarder) trace(ctx context.Context, pod *corev1.Pod) (context.Context, func(error)) {
	if f.Tracer == nil {
		return ctx, func(error) {}
	}
	ctx, traced := tracing.Continue(ctx, pod.Annotations[v1alpha1.TraceparentAnnotation])
	if !traced {
		return ctx, func(error) {}
	}
	ctx, span := f.Tracer.Start(ctx, spanForward, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append(tracing.Pod(pod), tracing.Provider.String(f.View.Provider),
			tracing.VirtualNode.String(f.View.VirtualNode))...))
	return ctx, func(err error) { tracing.End(span, err) }
}

// client returns a client of Liqo's kinds that creates ShadowPods with create. The types below are the path to the
// ShadowPods.
func (f *Forwarder) client(client liqoclient.Interface, pods corev1listers.PodNamespaceLister) liqoclient.Interface {
	return forwarding{Interface: client, forwarder: f, pods: pods}
}

type forwarding struct {
	liqoclient.Interface
	forwarder *Forwarder
	pods      corev1listers.PodNamespaceLister
}

func (l forwarding) OffloadingV1beta1() offloadingclient.OffloadingV1beta1Interface {
	return forwardingGroup{OffloadingV1beta1Interface: l.Interface.OffloadingV1beta1(), liqo: l}
}

type forwardingGroup struct {
	offloadingclient.OffloadingV1beta1Interface
	liqo forwarding
}

func (g forwardingGroup) ShadowPods(namespace string) offloadingclient.ShadowPodInterface {
	return forwardingShadowPods{ShadowPodInterface: g.OffloadingV1beta1Interface.ShadowPods(namespace), liqo: g.liqo}
}

type forwardingShadowPods struct {
	offloadingclient.ShadowPodInterface
	liqo forwarding
}

func (s forwardingShadowPods) Create(ctx context.Context, shadow *offloadingv1beta1.ShadowPod,
	opts metav1.CreateOptions,
) (*offloadingv1beta1.ShadowPod, error) {
	return s.liqo.forwarder.create(ctx, s.liqo.pods, timely{
		ShadowPodInterface: s.ShadowPodInterface, rest: s.liqo.OffloadingV1beta1().RESTClient(),
	}, shadow, opts)
}

// timely creates ShadowPods before a deadline.
type timely struct {
	offloadingclient.ShadowPodInterface
	rest rest.Interface
	// ready returns why a ShadowPod must not be created. The deadline starts when it is called.
	ready func(context.Context) error
}

// Create implements offloadingclient.ShadowPodInterface. It sends the deadline to the API server, which Liqo's client
// cannot do. It waits for the rate limit first, and then sends exactly one request: a retry could be rejected because
// of the first request, whose result would then be unknown.
func (t timely) Create(ctx context.Context, shadow *offloadingv1beta1.ShadowPod, opts metav1.CreateOptions,
) (*offloadingv1beta1.ShadowPod, error) {
	client, is := t.rest.(*rest.RESTClient)
	isFake := !is || client == nil
	if !isFake {
		if err := awaitTurn(ctx, client.GetRateLimiter()); err != nil {
			return nil, fmt.Errorf("%w: %w", errUnsent, err)
		}
	}
	// The broker's deadline starts here, if it removes the assignment.
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, v1alpha1.CreationTimeout)
	defer cancel()
	if err := t.ready(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsent, err)
	}
	// This also checks the wall clock: the monotonic clock, and so the timeout, stops while a machine is suspended.
	if time.Now().Round(0).Sub(began.Round(0)) >= v1alpha1.CreationTimeout {
		return nil, fmt.Errorf("%w: %w", errUnsent, context.DeadlineExceeded)
	}
	if isFake {
		return t.ShadowPodInterface.Create(ctx, shadow, opts)
	}
	deadline, _ := ctx.Deadline()
	created := &offloadingv1beta1.ShadowPod{}
	err := client.Post().Namespace(shadow.Namespace).Resource("shadowpods").VersionedParams(&opts, scheme.ParameterCodec).
		Timeout(time.Until(deadline)).MaxRetries(0).Throttle(flowcontrol.NewFakeAlwaysRateLimiter()).Body(shadow).Do(ctx).Into(created)
	return created, err
}

// awaitTurn waits for the rate limit; a nil limiter has no limit.
func awaitTurn(ctx context.Context, limiter flowcontrol.RateLimiter) error {
	if limiter == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, v1alpha1.CreationTimeout)
	defer cancel()
	return limiter.Wait(ctx)
}
