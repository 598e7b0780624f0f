package broker

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// queue is a controller's, for those who know without an event of the API that something is to be looked at.
type queue struct {
	mu sync.Mutex
	// add and length are nil before the controller has started; guarded by mu.
	add    func(reconcile.Request)
	length func() int
}

// source gives the queue to a controller.
func (q *queue) source() source.Source {
	return source.Func(func(_ context.Context, to workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.add, q.length = to.Add, to.Len
		return nil
	})
}

func (q *queue) put(name types.NamespacedName) {
	q.mu.Lock()
	add := q.add
	q.mu.Unlock()
	if add != nil {
		add(reconcile.Request{NamespacedName: name})
	}
}

// len is how many keys wait to be looked at.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.length == nil {
		return 0
	}
	return q.length()
}

// wakeWaiting has the pods for which nothing fitted tried again soon.
func (b *Broker) wakeWaiting() {
	select {
	case b.wake <- struct{}{}:
	default: // They will be.
	}
}

const (
	// wakeEvery is the least time between two trials of all that wait.
	wakeEvery = 200 * time.Millisecond
	// refusalsEvery is how often refusals are looked through for those whose time is over.
	refusalsEvery = time.Second
	// retryEvery is how often pods are tried again although nothing is known to have changed.
	retryEvery = 30 * time.Second
)

// wakeUp passes wakeWaiting on, many calls as one, until ctx ends.
func (b *Broker) wakeUp(ctx context.Context) error {
	refusals := time.NewTicker(refusalsEvery)
	defer refusals.Stop()
	// Criteria may ask for KPIs and labels, whose changes wake nobody.
	all := time.NewTicker(retryEvery)
	defer all.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		case <-all.C:
		case <-refusals.C:
			if !b.core.refusalsOver(b.now()) {
				continue
			}
		}
		for _, name := range b.core.takeWaiting() {
			b.podQueue.put(name)
		}
		pause := time.NewTimer(wakeEvery)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
	}
}

// wakePodsOf has the pods of a provider looked at, or those of all providers.
func (b *Broker) wakePodsOf(ctx context.Context, provider string) {
	var pods corev1.PodList
	if err := b.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		b.log.Error(err, "Cannot list the pods of a provider", "provider", provider)
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		// A pod that is leaving has lost its label.
		leaving := pod.Annotations[v1alpha1.MovingFromAnnotation] != ""
		if provider == "" || leaving || pod.Labels[v1alpha1.ProviderLabel] == provider {
			b.podQueue.put(nameOf(pod))
		}
	}
}
