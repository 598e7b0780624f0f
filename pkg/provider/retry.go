package provider

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
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"
)

// The times after which an object is tried again: doubled from the first to the last, as client-go's controllers do.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// retries gives every object of a reflector a back-off of its own. Liqo's generic reflector retries by client-go's
// default rate limiter, whose second half is one bucket of ten retries a second for all objects together
// (workqueue.DefaultControllerRateLimiter): after a burst, a pod that failed once waits for all the others' retries,
// half a minute at 500 pods. Only an error made by generic.EnqueueAfter passes that bucket by.
type retries struct {
	backoff workqueue.TypedRateLimiter[types.NamespacedName]
}

func newRetries() retries {
	return retries{backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry)}
}

// after turns the outcome of handling an object into when it is to be tried again.
func (r retries) after(err error, object types.NamespacedName) error {
	if err == nil {
		r.backoff.Forget(object)
		return nil
	}
	wait := r.backoff.When(object)
	// Liqo has logged what failed, or asks for the object again on purpose.
	klog.V(4).InfoS("The object will be tried again", "object", object, "after", wait, "reason", err)
	return generic.EnqueueAfter(wait)
}

// errNotReady stands for caches that are still being filled.
var errNotReady = errors.New("the reflection of the namespace is starting")

// retrying returns the reflector that Liqo makes of namespaced, retrying each object by itself. It is for those that
// work for the leader only; with no workers configured Liqo makes one that does nothing.
func (c *Config) retrying(resource resources.ResourceReflected, name string,
	namespaced generic.NamespacedReflectorFactoryFunc,
) manager.Reflector {
	cfg, retries := c.reflector(resource), newRetries()
	return generic.NewReflector(name, func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		return &retryingReflector{NamespacedReflector: namespaced(opts), namespace: opts.LocalNamespace, retries: retries}
	}, generic.WithoutFallback(), cfg.NumWorkers, cfg.Type, generic.ConcurrencyModeLeader)
}

// retryingReflector is a NamespacedReflector that is always ready: while the one below is not, its objects are retried,
// where the generic reflector would take a turn in the bucket.
type retryingReflector struct {
	manager.NamespacedReflector
	namespace string
	retries   retries
}

func (*retryingReflector) Ready() bool { return true }

func (r *retryingReflector) Handle(ctx context.Context, name string) error {
	err := errNotReady
	if r.NamespacedReflector.Ready() {
		err = r.NamespacedReflector.Handle(ctx, name)
	}
	return r.retries.after(err, types.NamespacedName{Namespace: r.namespace, Name: name})
}

// retryingFallback does the same for the pods of namespaces that are not reflected.
type retryingFallback struct {
	manager.FallbackReflector
	retries retries
}

func (*retryingFallback) Ready() bool { return true }

func (r *retryingFallback) Handle(ctx context.Context, pod types.NamespacedName) error {
	err := errNotReady
	if r.FallbackReflector.Ready() {
		err = r.FallbackReflector.Handle(ctx, pod)
	}
	return r.retries.after(err, pod)
}
