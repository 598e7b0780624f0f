package requeue

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Consumers knows from which consumer the pods of a namespace come, and the weights of consumers. It is safe for
// concurrent use; the zero Consumers knows none.
type Consumers struct {
	mu sync.RWMutex
	// of has the consumer of each namespace, weights those above 1; both guarded by mu.
	of      map[string]string
	weights map[string]int64
}

// Set records the namespaces and the weight of a consumer, instead of those before.
func (c *Consumers) Set(consumer string, weight int64, namespaces []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of, c.weights = map[string]string{}, map[string]int64{}
	}
	for namespace, of := range c.of {
		if of == consumer {
			delete(c.of, namespace)
		}
	}
	for _, namespace := range namespaces {
		c.of[namespace] = consumer
	}
	if delete(c.weights, consumer); weight > 1 {
		c.weights[consumer] = weight
	}
}

// turnOf returns the consumer of a namespace, "" if it is this cluster's own or not known, and the weight of it.
func (c *Consumers) turnOf(namespace string) (consumer string, weight int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	consumer = c.of[namespace]
	return consumer, max(1, c.weights[consumer])
}

// NewQueue returns a work queue for pods, in which consumers take turns by their weights (weighted round robin): many keys of one
// delay the keys of another by one turn only.
func (c *Consumers) NewQueue(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
		Name: name, Queue: &turns{consumers: c, of: map[string]*turn{}},
	})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: queue})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name: name, DelayingQueue: delaying,
	})
}

// turns is a workqueue.Queue, whose methods the work queue calls one at a time.
type turns struct {
	consumers *Consumers
	// of has the keys of each consumer that has any, ring the consumers in the order of their turns.
	of   map[string]*turn
	ring []*turn
	keys int
}

// turn has the keys of one consumer. It takes left more of them in the present turn.
type turn struct {
	consumer string
	keys     []reconcile.Request
	left     int64
}

// Touch implements workqueue.Queue.
func (t *turns) Touch(reconcile.Request) {}

// Push implements workqueue.Queue.
func (t *turns) Push(key reconcile.Request) {
	consumer, weight := t.consumers.turnOf(key.Namespace)
	of := t.of[consumer]
	if of == nil {
		of = &turn{consumer: consumer, left: weight}
		t.of[consumer], t.ring = of, append(t.ring, of)
	}
	of.keys = append(of.keys, key)
	t.keys++
}

// Len implements workqueue.Queue.
func (t *turns) Len() int { return t.keys }

// Pop implements workqueue.Queue.
func (t *turns) Pop() reconcile.Request {
	of := t.ring[0]
	key := of.keys[0]
	of.keys = of.keys[1:]
	t.keys--
	of.left--
	switch {
	case len(of.keys) == 0:
		t.ring = t.ring[1:]
		delete(t.of, of.consumer)
	case of.left <= 0:
		_, of.left = t.consumers.turnOf(key.Namespace)
		t.ring = append(t.ring[1:], of)
	}
	return key
}
