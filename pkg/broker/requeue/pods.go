package requeue

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
)

const (
	// unassignedInterval is the least time between two times that unassigned pods are woken.
	unassignedInterval = 200 * time.Millisecond
	// dueInterval is how often it is checked which refusals have expired, and which unassigned pods are to be tried
	// without a change.
	dueInterval = time.Second
)

// Pods requeues pods of the broker's node.
type Pods struct {
	queue  *Queue
	reader client.Reader
	state  *state.Federation
	log    logr.Logger
	// unassigned has an element when something has changed that may concern unassigned pods.
	unassigned chan struct{}
}

// NewPods requeues into queue. The reader's cache holds the pods of the broker's node only.
func NewPods(queue *Queue, reader client.Reader, known *state.Federation, log logr.Logger) *Pods {
	return &Pods{queue: queue, reader: reader, state: known, log: log, unassigned: make(chan struct{}, 1)}
}

// OfProvider requeues the pods that are assigned to a provider, and all that are moving.
func (p *Pods) OfProvider(ctx context.Context, provider string) {
	p.Each(ctx, func(pod *corev1.Pod) bool {
		// A moving pod has lost its label.
		return pod.Labels[v1alpha1.ProviderLabel] == provider || pod.Annotations[v1alpha1.MovingFromAnnotation] != ""
	})
}

// All requeues all pods.
func (p *Pods) All(ctx context.Context) { p.Each(ctx, func(*corev1.Pod) bool { return true }) }

// Each requeues the pods that something concerns.
func (p *Pods) Each(ctx context.Context, concerns func(*corev1.Pod) bool) {
	var pods corev1.PodList
	if err := p.reader.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		p.log.Error(err, "Cannot list the pods to requeue")
		return
	}
	for i := range pods.Items {
		if concerns(&pods.Items[i]) {
			p.queue.Add(client.ObjectKeyFromObject(&pods.Items[i]))
		}
	}
}

// Unassigned requeues soon those unassigned pods that the changes concern which the state has. Many calls become one.
func (p *Pods) Unassigned() {
	select {
	case p.unassigned <- struct{}{}:
	default: // They are about to be requeued.
	}
}

// Run requeues unassigned pods until ctx ends: when Unassigned was called, when refusals have expired, and each pod now
// and then (state.Federation.Wake).
func (p *Pods) Run(ctx context.Context) error {
	due := time.NewTicker(dueInterval)
	defer due.Stop()
	for {
		isDue := false
		select {
		case <-ctx.Done():
			return nil
		case <-p.unassigned:
		case <-due.C:
			isDue = true
		}
		names, more := p.state.Wake(isDue)
		for _, name := range names {
			p.queue.Add(name)
		}
		if more {
			p.Unassigned()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(unassignedInterval):
		}
	}
}
