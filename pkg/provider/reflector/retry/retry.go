// Package retry wraps Liqo's reflectors: an object that failed, or that came too early, is retried with its own
// back-off.
package retry

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
)

// The back-off of an object: it doubles from the first to the last value, as in client-go's controllers.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Retries has a back-off for every object of a reflector. Liqo's generic reflector retries with client-go's default
// rate limiter, whose second half is one bucket of ten retries a second for all objects together
// (workqueue.DefaultControllerRateLimiter): after a burst, a pod that failed once waits for the retries of all others,
// half a minute at 500 pods. Only an error from generic.EnqueueAfter bypasses that bucket.
type Retries struct {
	backoff workqueue.TypedRateLimiter[types.NamespacedName]
}

// New returns the Retries of one reflector.
func New() Retries {
	return Retries{backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry)}
}

// after converts the outcome of handling an object into the time of its retry.
func (r Retries) after(err error, object types.NamespacedName) error {
	if err == nil {
		r.backoff.Forget(object)
		return nil
	}
	wait := r.backoff.When(object)
	// Liqo has logged the failure, or requeues the object on purpose.
	klog.V(4).InfoS("Requeuing an object", "object", object, "after", wait, "reason", err)
	return generic.EnqueueAfter(wait)
}

// errNotReady means that caches are not synced yet.
var errNotReady = errors.New("the reflection of the namespace is starting")

// Namespaced returns namespaced reflectors that are always ready: until the wrapped reflector is ready, its objects are
// retried here, and not through the bucket of the generic reflector. Each namespace has its own back-offs, which end
// with its reflector: Liqo handles no object of a namespace that is no longer reflected, so the back-offs of objects
// that fail at that time would never be forgotten.
func (Retries) Namespaced(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		return &retryingReflector{NamespacedReflector: next(opts), namespace: opts.LocalNamespace, retries: New()}
	}
}

type retryingReflector struct {
	manager.NamespacedReflector
	namespace string
	retries   Retries
}

func (*retryingReflector) Ready() bool { return true }

func (r *retryingReflector) Handle(ctx context.Context, name string) error {
	err := errNotReady
	if r.NamespacedReflector.Ready() {
		err = r.NamespacedReflector.Handle(ctx, name)
	}
	return r.retries.after(err, types.NamespacedName{Namespace: r.namespace, Name: name})
}

// Fallback does the same for the pods of namespaces that are not reflected.
func (r Retries) Fallback(next manager.FallbackReflector) manager.FallbackReflector {
	return &retryingFallback{FallbackReflector: next, retries: r}
}

type retryingFallback struct {
	manager.FallbackReflector
	retries Retries
}

func (*retryingFallback) Ready() bool { return true }

func (r *retryingFallback) Handle(ctx context.Context, pod types.NamespacedName) error {
	err := errNotReady
	if r.FallbackReflector.Ready() {
		err = r.FallbackReflector.Handle(ctx, pod)
	}
	return r.retries.after(err, pod)
}
