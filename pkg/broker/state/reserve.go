package state

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/queue"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// longestReservation is how many times ReserveAfter a part of a VirtualNode is reserved at most. Then as much time
// passes until something is reserved there again: the pods there may run for days.
const longestReservation = 6

// reservation is a part of a VirtualNode that is kept free for a pod which has waited for long.
type reservation struct {
	pod   types.NamespacedName
	uid   types.UID
	owner string
	since time.Time
	// requests are the reserved amounts.
	requests resources.Amounts
}

// Reservation is the capacity reserved for a pod at a VirtualNode.
type Reservation struct {
	Pod      types.NamespacedName
	UID      types.UID
	Since    time.Time
	Requests resources.Amounts
}

// reservedFor returns where, and since when, capacity is reserved for a pod; zero if it is nowhere.
func (f *Federation) reservedFor(uid types.UID) (at scheduler.Place, since time.Time) {
	for at, r := range f.reservations {
		if r.uid == uid {
			return at, r.since
		}
	}
	return scheduler.Place{}, time.Time{}
}

// reserve reserves a part of a VirtualNode for each pod that has waited for ReserveAfter while smaller ones took the
// capacity that became free: one reservation at each VirtualNode, and one for each owner, so that neither large pods
// nor many of them block others.
func (f *Federation) reserve(now time.Time) {
	after := f.cfg.ReserveAfter
	if after <= 0 {
		return
	}
	f.endReservations(now)
	var waiting []*queue.Pod
	for _, p := range f.pods {
		if p.unassigned && p.queued.LacksRoom() && now.Sub(p.queued.Since()) >= after {
			waiting = append(waiting, &p.queued)
		}
	}
	if len(waiting) == 0 {
		return
	}
	owners := map[string]bool{}
	for _, r := range f.reservations {
		owners[r.owner] = true
	}
	// Otherwise reservations would give capacity to a consumer whose turn it is not.
	for _, waits := range queue.Fairly(waiting, f.shares()) {
		p := f.pods[waits.UID]
		if owners[p.owner] {
			continue
		}
		if at, found := f.placeToReserve(p, now); found {
			owners[p.owner] = true
			f.reservations[at] = &reservation{pod: p.name, uid: p.queued.UID, owner: p.owner, since: now, requests: p.asks}
			f.claim(f.providers[at.Provider], at)
			p.queued.RetryNext() // Its condition says so.
		}
	}
}

// placeToReserve returns the VirtualNode where least must become free for a pod, among those that grant its requests,
// and lacked only free capacity when it was tried last.
func (f *Federation) placeToReserve(p *pod, now time.Time) (best scheduler.Place, found bool) {
	least := 0.0
	for _, id := range p.queued.FullProviders() {
		known := f.providers[id]
		if known == nil {
			continue
		}
		for i := range known.scheduled.Slices {
			at := scheduler.Place{Provider: id, VirtualNode: known.scheduled.Slices[i].VirtualNode}
			if f.reservations[at] != nil || now.Before(f.reservedAgain[at]) || known.closings[at.VirtualNode].closure().Concerns(p.owner) {
				continue
			}
			missing, fits := f.scheduler.Grants(at, p.queued.Demand())
			if fits && (!found || missing < least) {
				best, least, found = at, missing, true
			}
		}
	}
	return best, found
}

// endReservations ends those whose pod does not wait for that any more, and those that last for too long.
func (f *Federation) endReservations(now time.Time) {
	long := longestReservation * f.cfg.ReserveAfter
	for at, again := range f.reservedAgain {
		if !now.Before(again) {
			delete(f.reservedAgain, at)
		}
	}
	for at, r := range f.reservations {
		p := f.pods[r.uid]
		_, usable := f.scheduler.Room(at, r.uid)
		expired := now.Sub(r.since) >= long
		if p != nil && p.unassigned && usable && !expired && slices.Contains(p.queued.FullProviders(), at.Provider) {
			continue
		}
		if expired {
			f.reservedAgain[at] = now.Add(long)
		}
		f.endReservation(at)
	}
}

func (f *Federation) endReservation(at scheduler.Place) {
	delete(f.reservations, at)
	if p := f.providers[at.Provider]; p != nil {
		f.claim(p, at)
	}
	f.queue.Open(at)
}

// endReservationFor ends the reservation for a pod that was assigned or is gone.
func (f *Federation) endReservationFor(uid types.UID) {
	for at, r := range f.reservations {
		if r.uid == uid {
			f.endReservation(at)
		}
	}
}

// reservationAt returns the reservation as the scheduler reads it; nil if there is none.
func (f *Federation) reservationAt(at scheduler.Place) *scheduler.Reservation {
	r := f.reservations[at]
	if r == nil {
		return nil
	}
	return &scheduler.Reservation{UID: r.uid, Requests: r.requests}
}

// reservedOf returns the reservations at the VirtualNodes of a provider.
func (f *Federation) reservedOf(provider string) map[string]Reservation {
	reserved := map[string]Reservation{}
	for at, r := range f.reservations {
		if at.Provider == provider {
			reserved[at.VirtualNode] = Reservation{Pod: r.pod, UID: r.uid, Since: r.since, Requests: r.requests}
		}
	}
	return reserved
}
