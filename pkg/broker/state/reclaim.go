package state

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// reclaim is an amount that a consumer uses beyond its grant, and since when others have had a right to it.
type reclaim struct {
	amounts resources.Amounts
	since   time.Time
}

// SetReclaimed records, by consumer, the amounts that its pods use beyond its grant and that others have a right to and
// lack. A consumer without an entry is not concerned. The caller does not change the amounts.
func (f *Federation) SetReclaimed(amounts map[string]resources.Amounts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, before := f.cfg.Clock.Now(), f.reclaims
	f.reclaims = make(map[string]reclaim, len(amounts))
	for consumer, reclaimed := range amounts {
		since := now
		if was, known := before[consumer]; known {
			since = was.since
		}
		f.reclaims[consumer] = reclaim{amounts: reclaimed, since: since}
	}
	for _, p := range f.pods {
		if _, concerned := f.reclaims[p.account.Consumer]; !concerned {
			p.reclaimed = false
		}
	}
}

// reclaim chooses the pods that leave their provider for others: of each consumer that has used more than its grant for
// ReclaimAfter the youngest ones, no more than it uses beyond the grant. Pods with claims stay. It returns those that were
// not chosen before.
func (f *Federation) reclaim(now time.Time) (chosen []types.NamespacedName) {
	if f.cfg.ReclaimAfter <= 0 {
		return nil
	}
	for consumer, r := range f.reclaims {
		grant := f.grants[consumer]
		if grant == nil || now.Sub(r.since) < f.cfg.ReclaimAfter {
			continue
		}
		// The grants of all slices: the state counts a pod until it has left, and the aggregator counts now and then.
		left := f.scheduler.UsedBy(consumer).Excess(grant.Sum).Min(r.amounts)
		for _, p := range f.youngest(consumer) {
			_, requests := f.scheduler.Counted(scheduler.HolderOf(p.queued.UID))
			part := requests.Min(left).Excess(nil)
			if len(part) > 0 && !p.reclaimed {
				chosen = append(chosen, p.name)
			}
			p.reclaimed = len(part) > 0
			left.Sub(part)
		}
	}
	return chosen
}

// youngest returns the assigned pods of a consumer that may leave, those first that do already, then the youngest.
func (f *Federation) youngest(consumer string) (pods []*pod) {
	for uid, p := range f.pods {
		at := f.scheduler.PlaceOf(scheduler.HolderOf(uid))
		if p.account.Consumer == consumer && !p.hasClaims && !p.ended && at != (scheduler.Place{}) {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(x, y *pod) int {
		switch leaves, also := x.reclaimed && !x.evictedAt.IsZero(), y.reclaimed && !y.evictedAt.IsZero(); {
		case leaves && !also:
			return -1
		case also && !leaves:
			return 1
		}
		if order := y.created.Compare(x.created); order != 0 {
			return order
		}
		return strings.Compare(x.name.String(), y.name.String())
	})
	return pods
}
