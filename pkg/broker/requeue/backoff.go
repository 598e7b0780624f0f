package requeue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The backoff of an object that another client has changed: the cache will show it, unless it lags behind.
const (
	FirstConflict = 20 * time.Millisecond
	lastConflict  = 5 * time.Second
)

// Failures is the backoff of objects whose reconciliation failed.
func Failures() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, time.Minute)
}

// Conflicts is the backoff of objects that another client has changed.
func Conflicts() workqueue.TypedRateLimiter[types.NamespacedName] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](FirstConflict, lastConflict)
}
