package belief

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/belief/moves"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief/queue"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// MoveDelay returns how long a pod must wait before it asks again to be moved; 0 when it may be.
func (b *Belief) MoveDelay(uid types.UID) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit.Delay(uid, b.cfg.Clock.Now())
}

// MayMove returns whether a pod may be moved as planned (moves.Turns). It counts as unavailable from then on, until it
// is assigned anew or ObserveStays. Of two callers the later one must have read its replicas later.
func (b *Belief) MayMove(of *corev1.Pod, among moves.Replicas) moves.Turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turns.MayMove(&b.recordOf(of).turn, of, among, func(uid types.UID) *moves.Pod {
		if p := b.pods[uid]; p != nil {
			return &p.turn
		}
		return nil
	})
}

// NextToMove returns the pods to try after a pod has become available: the one that has waited longest among its
// replicas. If the pod waits itself, that is none.
func (b *Belief) NextToMove(of *corev1.Pod) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[of.UID]; p != nil && p.turn.Waits() {
		return nil
	}
	return b.turns.Next(of)
}

// NextToMoveIn returns the pods to try after any pod of a namespace is gone, or has ended: the one that has waited longest
// among each replicas.
func (b *Belief) NextToMoveIn(namespace string) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turns.NextIn(namespace)
}

// movesWaiting returns the pods of a provider that wait for their replicas.
func (b *Belief) movesWaiting(provider string) moves.Waiting {
	return b.turns.At(func(at scheduler.Place) bool { return at.Provider == provider && b.providerAt(at) != nil })
}

// Wake returns the unassigned pods to try now, those that wait longest first (queue.Queue). More means that others may
// follow, if these do not take what became free.
func (b *Belief) Wake() (names []types.NamespacedName, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserve(b.cfg.Clock.Now())
	moreGrants := b.retryWithinGrants()
	var unassigned []*queue.Pod
	for _, p := range b.pods {
		if p.unassigned {
			unassigned = append(unassigned, &p.waits)
		}
	}
	woken, more := b.queue.Wake(unassigned, b.cfg.Clock.Now(), b.opening)
	for _, p := range woken {
		names = append(names, p.Name)
	}
	return names, more || moreGrants
}

// opening returns a VirtualNode and its room; false if it takes no pods.
func (b *Belief) opening(at scheduler.Place) (queue.Opening, bool) {
	p := b.providerAt(at)
	room, usable := b.state.Room(at, "")
	if p == nil || !usable {
		return queue.Opening{}, false
	}
	opening := queue.Opening{Provider: at.Provider, Changed: p.changed, Room: room}
	if r := b.reservations[at]; r != nil {
		opening.Holder = r.uid
		opening.HoldersRoom, _ = b.state.Room(at, r.uid)
	}
	return opening, true
}

// openAll takes in that more than the room of a provider has changed.
func (b *Belief) openAll(p *provider) {
	for i := range p.scheduled.Slices {
		p.changed = b.queue.Open(scheduler.Place{Provider: p.scheduled.ID, VirtualNode: p.scheduled.Slices[i].VirtualNode})
	}
}

// release frees the room of a pod, or of an amount that was withheld.
func (b *Belief) release(uid types.UID) {
	b.grow(uid, nil)
	if at := b.state.PlaceOf(uid); at != (scheduler.Place{}) {
		b.queue.Open(at)
	}
	b.state.Release(uid)
}

// grow records that a consumer has more left of its grants when a pod takes other amounts than before.
func (b *Belief) grow(uid types.UID, requests resources.Amounts) {
	if account := b.state.AccountOf(uid); account != (scheduler.Account{}) && b.state.TakesMore(uid, requests) {
		b.grown[account.Consumer] = true
	}
}

// assign takes the room of a pod, and frees that elsewhere.
func (b *Belief) assign(a scheduler.Assignment) {
	if p := b.pods[a.UID]; p != nil {
		a.Account = p.account
	}
	if a.Place == (scheduler.Place{}) {
		a.App = ""
	}
	b.grow(a.UID, a.Requests)
	if at := b.state.PlaceOf(a.UID); at != (scheduler.Place{}) && at != a.Place {
		b.queue.Open(at)
	}
	b.state.Assign(a)
}
