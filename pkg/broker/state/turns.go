package state

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/queue"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// MoveDelay returns how long a pod must wait before it asks again to be moved; 0 when it may be.
func (f *Federation) MoveDelay(uid types.UID) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limit.Delay(uid, f.cfg.Clock.Now())
}

// MayMove returns whether a pod may be moved as planned (disruption.Turns). It counts as unavailable from then on,
// until it is assigned again or ObserveStays. Of two callers the later one must have read its replicas later.
func (f *Federation) MayMove(of *corev1.Pod, among disruption.Replicas) disruption.Turn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.turns.MayMove(&f.recordOf(of).budget, of, among, func(uid types.UID) *disruption.Pod {
		if p := f.pods[uid]; p != nil {
			return &p.budget
		}
		return nil
	})
}

// NextToMove returns the pods to try after a pod has become available: the one that has waited longest among its
// replicas. If the pod waits itself, that is none.
func (f *Federation) NextToMove(of *corev1.Pod) []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[of.UID]; p != nil && p.budget.Waits() {
		return nil
	}
	return f.turns.Next(of)
}

// NextToMoveIn returns the pods to try after any pod of a namespace is gone, or has ended: the one that has waited
// longest among each replicas.
func (f *Federation) NextToMoveIn(namespace string) []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.turns.NextIn(namespace)
}

// movesWaiting returns the pods of a provider that wait for their replicas.
func (f *Federation) movesWaiting(provider string) disruption.Waiting {
	return f.turns.At(func(at scheduler.Place) bool { return at.Provider == provider && f.providerAt(at) != nil })
}

// Wake returns the unassigned pods to try now, in the order of their turns (queue.Queue). With due it forgets expired
// refusals before, and adds the assigned pods that have to leave for others (reclaim). More means that others may follow,
// if these do not use the free capacity.
func (f *Federation) Wake(due bool) (names []types.NamespacedName, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.cfg.Clock.Now()
	if due {
		f.expire(now)
	}
	f.reserve(now)
	moreGrants := f.retryWithinGrants()
	var unassigned []*queue.Pod
	for _, p := range f.pods {
		if p.unassigned {
			unassigned = append(unassigned, &p.queued)
		}
	}
	f.findWanted()
	woken, more := f.queue.Wake(unassigned, now, f.shares, f.opening)
	if due {
		names = f.reclaim(now)
	}
	for _, p := range woken {
		names = append(names, p.Name)
	}
	return names, more || moreGrants
}

// opening returns a VirtualNode and its free capacity; false if it accepts no pods.
func (f *Federation) opening(at scheduler.Place) (queue.Opening, bool) {
	p := f.providerAt(at)
	room, usable := f.scheduler.Room(at, "")
	if p == nil || !usable {
		return queue.Opening{}, false
	}
	opening := queue.Opening{Provider: at.Provider, Changed: p.changed, Room: room}
	if r := f.reservations[at]; r != nil {
		opening.Holder = r.uid
		opening.HoldersRoom, _ = f.scheduler.Room(at, r.uid)
	}
	return opening, true
}

// openAll records that a provider itself has changed, and not only its free capacity.
func (f *Federation) openAll(p *provider) {
	for i := range p.scheduled.Slices {
		p.changed = f.queue.Open(scheduler.Place{Provider: p.scheduled.ID, VirtualNode: p.scheduled.Slices[i].VirtualNode})
	}
}

// release frees the amounts of a holder.
func (f *Federation) release(of scheduler.Holder) {
	f.grow(of, nil)
	if at := f.scheduler.PlaceOf(of); at != (scheduler.Place{}) {
		f.queue.Open(at)
		f.movePeer(of)
	}
	f.scheduler.Release(of)
}

// movePeer records that a pod is at another place than before, gone, or seen otherwise by the constraints of others.
func (f *Federation) movePeer(of scheduler.Holder) {
	if p := f.pods[of.UID]; p != nil && of.Use == "" {
		f.queue.MovePeer(p.name.Namespace)
	}
}

// grow records that a consumer has more left of its grants when a holder takes other amounts than before.
func (f *Federation) grow(of scheduler.Holder, requests resources.Amounts) {
	if account := f.scheduler.AccountOf(of); account.Consumer != "" && f.scheduler.TakesMore(of, requests) {
		f.grown[account.Consumer] = true
	}
}

// assign takes the capacity of a holder, and frees its capacity elsewhere. A pod counts in its own account.
func (f *Federation) assign(a scheduler.Assignment) {
	if p := f.pods[a.UID]; p != nil && a.Use == "" {
		if a.Account = p.account; a.Account == (scheduler.Account{}) {
			a.Account = scheduler.Own
		}
	}
	if a.Place == (scheduler.Place{}) {
		a.App = ""
	}
	f.grow(a.Holder(), a.Requests)
	at := f.scheduler.PlaceOf(a.Holder())
	if at != (scheduler.Place{}) && at != a.Place {
		f.queue.Open(at)
	}
	if at != a.Place || !f.scheduler.SamePeer(a.Holder(), a.Peer) {
		f.movePeer(a.Holder())
	}
	f.scheduler.Assign(a)
}
