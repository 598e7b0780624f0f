package state

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// mostSamples bounds how many changes of a reclaimed amount are remembered within ReclaimAfter.
const mostSamples = 100

// reclaim has the amounts that a user of a slice used beyond the grant, and others had a right to, over the last
// ReclaimAfter: each from its time until the next, the oldest first.
type reclaim struct {
	samples []sample
	// used are the requests of the counted pods of the user when the last sample was taken.
	used resources.Amounts
}

type sample struct {
	at      time.Time
	amounts resources.Amounts
}

// add records the present amounts.
func (r *reclaim) add(now time.Time, after time.Duration, amounts, used resources.Amounts) {
	r.used = used
	r.samples = append(r.samples, sample{now, amounts})
	r.prune(now, after)
	if len(r.samples) > mostSamples { // The smaller amount since the earlier time: rather too little is reclaimed.
		r.samples[1] = sample{r.samples[0].at, r.samples[0].amounts.Min(r.samples[1].amounts)}
		r.samples = r.samples[1:]
	}
}

// prune forgets the amounts from before the last ReclaimAfter.
func (r *reclaim) prune(now time.Time, after time.Duration) {
	for len(r.samples) > 1 && now.Sub(r.samples[1].at) >= after {
		r.samples = r.samples[1:]
	}
}

// due returns the part that others have had a right to for the whole time.
func (r *reclaim) due(now time.Time, after time.Duration) resources.Amounts {
	r.prune(now, after)
	if now.Sub(r.samples[0].at) < after {
		return nil
	}
	least := r.samples[0].amounts
	for i := range r.samples {
		least = least.Min(r.samples[i].amounts)
	}
	return least
}

// SetReclaimed records, by user of a slice, the amounts that its pods use beyond the grant and that others have a right to
// and lack. A user without an entry is not concerned. The caller does not change the amounts.
func (f *Federation) SetReclaimed(amounts map[scheduler.Account]resources.Amounts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, before := f.cfg.Clock.Now(), f.reclaims
	f.reclaims = make(map[scheduler.Account]*reclaim, len(amounts))
	for of, reclaimed := range amounts {
		r := before[of]
		if r == nil {
			r = &reclaim{}
		}
		r.add(now, f.cfg.ReclaimAfter, reclaimed, f.scheduler.UsedBy(of))
		f.reclaims[of] = r
	}
	for _, p := range f.pods {
		if f.reclaims[p.account] == nil {
			p.reclaimed = false
		}
	}
}

// reclaim chooses the pods that leave their provider for others: of each user that has used more than its grant for
// ReclaimAfter the youngest ones, no more than it uses beyond the grant. It returns those that were not chosen before.
func (f *Federation) reclaim(now time.Time) (chosen []types.NamespacedName) {
	if f.cfg.ReclaimAfter <= 0 {
		return nil
	}
	for of, r := range f.reclaims {
		grant, due := f.grants[of.Consumer], r.due(now, f.cfg.ReclaimAfter)
		if grant == nil || len(due) == 0 {
			continue
		}
		// The amounts are of the last decision of the aggregator; the pods that have left since are given back.
		used := f.scheduler.UsedBy(of)
		left := due.Excess(r.used.Excess(used)).Min(used.Excess(grant.ByCreator[of.Creator]))
		if of.Creator == "" {
			left = left.Min(f.scheduler.UsedByConsumer(of.Consumer).Excess(grant.Sum))
		}
		for _, p := range f.youngest(of) {
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

// youngest returns the assigned pods of a user that leave already, or may: the former first, then the youngest. Pods with
// claims stay, because their volumes are there, and so do pods of providers that cannot be used now: failover decides
// about those.
func (f *Federation) youngest(of scheduler.Account) (pods []*pod) {
	for uid, p := range f.pods {
		if p.account != of || p.ended {
			continue
		}
		at := f.scheduler.PlaceOf(scheduler.HolderOf(uid))
		provider := f.providerAt(at)
		usable := provider != nil && provider.confirmed && provider.unreachableSince.IsZero() && !provider.unusable()
		if p.leaves() || at != (scheduler.Place{}) && usable && !p.hasClaims {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(x, y *pod) int {
		if x.leaves() != y.leaves() {
			if x.leaves() {
				return -1
			}
			return 1
		}
		return cmp.Or(y.created.Compare(x.created), strings.Compare(x.name.String(), y.name.String()))
	})
	return pods
}

// leaves reports whether an assigned pod gives its capacity back in any case: it is being deleted, or moves because of
// others.
func (p *pod) leaves() bool { return p.deleting || p.reclaimed && !p.evictedAt.IsZero() }
