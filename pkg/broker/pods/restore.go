package pods

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// Restorer counts, once, the room of all assigned pods when this process begins to lead, of those that have ended, too. It may
// have been a standby for days. Nothing is decided, and no number of pods is shown, before.
type Restorer struct {
	reader client.Reader
	belief *belief.Belief
	clock  clock.PassiveClock

	mu sync.Mutex
	// leadsSince is when this process began to lead; zero before. Guarded by mu until it is set.
	leadsSince time.Time
}

// NewRestorer returns a Restorer. The reader's cache holds the pods of the broker's node only.
func NewRestorer(reader client.Reader, known *belief.Belief, passive clock.PassiveClock) *Restorer {
	return &Restorer{reader: reader, belief: known, clock: passive}
}

// Restore returns once the room is counted.
func (r *Restorer) Restore(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leadsSince.IsZero() {
		return nil
	}
	var pods corev1.PodList
	if err := r.reader.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch at := placement.PlaceOf(pod); {
		case at == "":
		case placement.Terminal(pod):
			r.belief.ObserveEnded(pod, at)
		default:
			r.belief.ObserveAssigned(pod, at)
		}
	}
	r.leadsSince = r.clock.Now()
	return nil
}
