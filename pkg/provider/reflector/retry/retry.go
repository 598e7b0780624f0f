// Package retry is around Liqo's reflectors: what failed, or came too early, is handled again after a back-off of its own.
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

// The times after which an object is retried: doubled from the first to the last, as client-go's controllers do.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Retries has a back-off for every object of a reflector. Liqo's generic reflector retries by client-go's
// default rate limiter, whose second half is one bucket of ten retries a second for all objects together
// (workqueue.DefaultControllerRateLimiter): after a burst, a pod that failed once waits for all the others' retries,
// half a minute at 500 pods. Only an error made by generic.EnqueueAfter does not use that bucket.
type Retries struct {
	backoff workqueue.TypedRateLimiter[types.NamespacedName]
}

// New returns the Retries of one reflector.
func New() Retries {
	return Retries{backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry)}
}

// after turns the outcome of handling an object into when it is retried.
func (r Retries) after(err error, object types.NamespacedName) error {
	if err == nil {
		r.backoff.Forget(object)
		return nil
	}
	wait := r.backoff.When(object)
	// Liqo has logged what failed, or requeues the object on purpose.
	klog.V(4).InfoS("The object will be retried", "object", object, "after", wait, "reason", err)
	return generic.EnqueueAfter(wait)
}

// errNotReady means that caches are not synced yet.
var errNotReady = errors.New("the reflection of the namespace is starting")

// Namespaced returns reflectors of namespaces that are always ready: while the one below is not, its objects are
// retried here, where the generic reflector would use its bucket. Each namespace has back-offs of its own, which end
// with its reflector: Liqo handles no object of a namespace that is not reflected any more, so none of those that fail
// then would be forgotten.
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
