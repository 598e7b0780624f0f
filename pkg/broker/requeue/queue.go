// Package requeue has the queues by which the broker's controllers requeue keys for each other without an event of the
// API, and requeues the pods that a change may concern.
package requeue

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue is the work queue of a controller, to which other controllers add keys. The zero Queue drops added keys until
// its controller starts, which reconciles everything then.
type Queue struct {
	mu sync.Mutex
	// queue is nil before the controller has started; guarded by mu.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Source hands the queue of a controller to q when the controller starts.
func (q *Queue) Source() source.Source {
	return source.Func(func(_ context.Context, started workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.queue = started
		return nil
	})
}

func (q *Queue) started() workqueue.TypedRateLimitingInterface[reconcile.Request] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queue
}

// Add requeues a key.
func (q *Queue) Add(name types.NamespacedName) {
	if queue := q.started(); queue != nil {
		queue.Add(reconcile.Request{NamespacedName: name})
	}
}

// Len returns how many keys are waiting.
func (q *Queue) Len() int {
	if queue := q.started(); queue != nil {
		return queue.Len()
	}
	return 0
}
