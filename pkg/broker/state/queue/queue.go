package queue

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

const (
	// retryInterval is after which time a waiting pod is tried although no known change concerns it: criteria may read
	// KPIs. Up to retryJitter is added, by the UID, so that pods that began to wait together are not tried together.
	retryInterval = 30 * time.Second
	retryJitter   = 15 * time.Second
	// MaxWoken is how many pods are tried at once because of changes, and maxChecks how many pairs of a pod and a slice
	// are compared while nothing else is decided: the next ones follow.
	MaxWoken  = 200
	maxChecks = 50_000
)

// Pod is the queue's state of a pod that fitted no provider when it was tried last.
type Pod struct {
	Name types.NamespacedName
	UID  types.UID
	// Consumer is the id of the cluster that the pod came from; "" is this one. Pods of one consumer are tried in the
	// order in which they began to wait.
	Consumer string
	// since is when it began to wait: pods get free capacity in that order.
	since time.Time
	// retryAt is when it is tried at the latest. again means that it is tried next.
	retryAt time.Time
	again   bool
	// seen is the number of the last change that its last try has seen, or for which it was woken.
	seen uint64
	// filters are the verdicts of the last try on the providers, which are sorted and shared by many pods. Both are nil
	// while they are not known.
	providers []string
	filters   []verdict.Filter
	demand    scheduler.Demand
	// readsResources means that its criteria read assigned or free resources.
	readsResources bool
	// awaitsGrant means that no provider was asked: the pod is beyond the grant of its consumer.
	awaitsGrant bool
	// heldSince is since when a new pod is held back although it fits, because pods of consumers with smaller shares wait
	// for that capacity; zero if it is not. inTurn means that it was woken for free capacity in its turn, and is not held.
	heldSince time.Time
	inTurn    bool
}

// Hold holds back a pod that fits: it is tried again when no pods of consumers with smaller shares go first. It returns
// since when the pod is held.
func (p *Pod) Hold(now time.Time) time.Time {
	if !p.IsHeld() {
		p.heldSince = now
	}
	return p.heldSince
}

// IsHeld reports whether the pod is held back.
func (p *Pod) IsHeld() bool { return !p.heldSince.IsZero() }

// InTurn reports whether the pod was woken in its turn, or released, and not tried since.
func (p *Pod) InTurn() bool { return p.inTurn }

// AwaitGrant records that the pod is beyond the grant of its consumer: no change of a provider concerns it.
func (p *Pod) AwaitGrant() { p.awaitsGrant, p.heldSince = true, time.Time{} }

// AwaitsGrant reports whether the pod was beyond the grant of its consumer when it was tried last, and has not fitted
// into it since.
func (p *Pod) AwaitsGrant() bool { return p.awaitsGrant }

// RetryWithinGrant has the pod tried next, once, because it fits into the grant of its consumer.
func (p *Pod) RetryWithinGrant() { p.awaitsGrant, p.again = false, true }

// RetryNext has the pod tried next, whether or not a change concerns it.
func (p *Pod) RetryNext() { p.again = true }

// Since returns when the pod began to wait.
func (p *Pod) Since() time.Time { return p.since }

// Demand returns its requests.
func (p *Pod) Demand() scheduler.Demand { return p.demand }

// LacksRoom reports whether a provider lacked only free capacity when the pod was tried last.
func (p *Pod) LacksRoom() bool { return slices.ContainsFunc(p.filters, lacksRoom) }

// ofPeers reports whether a filter depends on the places of other pods.
func ofPeers(f verdict.Filter) bool { return f == verdict.TopologySpread || f == verdict.PodAffinity }

// FullProviders returns these providers.
func (p *Pod) FullProviders() []string {
	var full []string
	for i, filter := range p.filters {
		if lacksRoom(filter) {
			full = append(full, p.providers[i])
		}
	}
	return full
}

func lacksRoom(f verdict.Filter) bool {
	return f == verdict.Insufficient || f == verdict.TooManyPods || f == verdict.Reserved
}

// Queue has the changes for which pods may be tried again.
type Queue struct {
	// openings are the VirtualNodes that may take more pods than when the pods were woken last, with the number of the
	// last change there; changes is the last number.
	openings map[scheduler.Place]uint64
	changes  uint64
	// peers has the number of the last change of the places of pods, by namespace.
	peers map[string]uint64
	// triedOn are the ids of the providers of the last try.
	triedOn []string
}

// New returns a Queue without changes.
func New() *Queue {
	return &Queue{openings: map[scheduler.Place]uint64{}, peers: map[string]uint64{}}
}

// MovePeer records that a pod of a namespace was assigned, or is gone: it counts in the constraints of others there.
func (q *Queue) MovePeer(namespace string) {
	q.changes++
	q.peers[namespace] = q.changes
}

// Open records that a VirtualNode may accept more pods. It returns the number of the change.
func (q *Queue) Open(at scheduler.Place) uint64 {
	q.changes++
	q.openings[at] = q.changes
	return q.changes
}

// BeginTry prepares the record of a consumer's pod for a decision; first means that it did not wait before. Changes
// during the decision concern the pod.
func (q *Queue) BeginTry(p *Pod, first bool, consumer string, demand scheduler.Demand, readsResources bool, now time.Time) {
	since := p.since
	if first {
		since = now
	}
	*p = Pod{
		Name: p.Name, UID: p.UID, Consumer: consumer, since: since, retryAt: now.Add(retryDelay(p.UID)), seen: q.changes,
		demand: demand, readsResources: readsResources, heldSince: p.heldSince,
	}
}

// EndTry notes why a pod was not assigned.
func (q *Queue) EndTry(p *Pod, verdicts []verdict.Verdict) {
	p.heldSince = time.Time{}
	p.providers = q.providersOf(verdicts)
	p.filters = make([]verdict.Filter, len(verdicts))
	for i := range verdicts {
		p.filters[i] = verdicts[i].Filter
	}
}

// providersOf returns the ids in verdicts: the ids of the last try, if they are the same.
func (q *Queue) providersOf(verdicts []verdict.Verdict) []string {
	if !slices.EqualFunc(q.triedOn, verdicts, func(id string, v verdict.Verdict) bool { return id == v.Provider }) {
		q.triedOn = make([]string, len(verdicts))
		for i := range verdicts {
			q.triedOn[i] = verdicts[i].Provider
		}
	}
	return q.triedOn
}

func retryDelay(uid types.UID) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid))
	return retryInterval + time.Duration(hash.Sum64()%uint64(retryJitter))
}

// Opening is a VirtualNode that may take more pods.
type Opening struct {
	Provider string
	// Changed is the number of the last change of the provider itself; changes of its free capacity have their own.
	Changed uint64
	// Room is the free capacity that is not reserved. Only the pod Holder may also use the reserved part: its free
	// capacity is HoldersRoom.
	Room        scheduler.Room
	Holder      types.UID
	HoldersRoom scheduler.Room
}

// roomFor returns the free capacity for a pod.
func (at *Opening) roomFor(p *Pod) *scheduler.Room {
	if at.Holder != "" && at.Holder == p.UID {
		return &at.HoldersRoom
	}
	return &at.Room
}

// concerns reports whether a change of the capacity there concerns a pod: the pod lacked capacity there, or the
// provider itself has changed since, and is among those that the pod may use.
func (at *Opening) concerns(p *Pod, change uint64) bool {
	if p.seen >= change {
		return false
	}
	i, known := slices.BinarySearch(p.providers, at.Provider)
	if !known {
		return true
	}
	changed := p.seen < at.Changed
	switch p.filters[i] {
	case verdict.Insufficient, verdict.TooManyPods, verdict.Reserved:
		return true
	case verdict.PolicyFilter, verdict.PodFilter, verdict.Failed:
		return changed || p.readsResources
	case verdict.Origin, verdict.NotSelected, verdict.NotNamed:
		return false
	}
	return changed
}

// Wake returns the pods to try now: pods that were not tried for too long, pods whose constraints read the places of pods
// that have changed (MaxWoken at once), and pods that a change concerns and that fit now. No more of the last ones are
// woken than fit into the free capacity: more means that others may follow, if these do not use it. Pods of the consumer
// with the smallest share are first, then those that have waited longest (Fairly); shares returns the present shares.
// opening returns false for a VirtualNode that cannot be assigned pods.
func (q *Queue) Wake(
	pods []*Pod, now time.Time, shares func() *fairshare.Usage, opening func(scheduler.Place) (Opening, bool),
) (woken []*Pod, more bool) {
	var waiting, held []*Pod
	namespaces := sets.New[string]()
	for _, p := range pods {
		namespaces.Insert(p.Name.Namespace)
		switch {
		case p.IsHeld():
			held = append(held, p)
		case p.again || !p.retryAt.After(now):
			woken = append(woken, p)
		default:
			waiting = append(waiting, p)
		}
	}
	maps.DeleteFunc(q.peers, func(namespace string, _ uint64) bool { return !namespaces.Has(namespace) })
	waiting, concerned := q.withoutConcerned(waiting)
	most := min(len(concerned), MaxWoken)
	woken = append(woken, concerned[:most]...)
	chosen, more := q.wakeForOpenings(waiting, shares(), opening)
	more = more || len(concerned) > most
	chosen = append(chosen, released(held, chosen, shares(), now)...)
	for _, p := range chosen {
		p.inTurn = true
	}
	woken = Fairly(append(woken, chosen...), shares())
	for _, p := range woken {
		p.again, p.seen, p.retryAt = false, q.changes, now.Add(retryDelay(p.UID))
	}
	return woken, more
}

// longestHeld is the longest time for which a pod is held back.
const longestHeld = 5 * time.Second

// released returns the held pods that go now: no pod of a consumer with a smaller share was chosen for free capacity, or
// they were held for long.
func released(held, chosen []*Pod, shares *fairshare.Usage, now time.Time) (free []*Pod) {
	if len(held) == 0 {
		return nil
	}
	least := math.Inf(1)
	for _, p := range chosen {
		least = min(least, shares.Share(p.Consumer).Value)
	}
	for _, p := range held {
		waited := now.Sub(p.heldSince) // Negative if the clock was set back.
		if least >= shares.Share(p.Consumer).Value || waited < 0 || waited >= longestHeld {
			free = append(free, p)
		}
	}
	return free
}

// withoutConcerned divides the waiting pods: those whose constraints read the places of pods that have changed, longest
// waiting first, and the others.
func (q *Queue) withoutConcerned(waiting []*Pod) (others, concerned []*Pod) {
	for _, p := range waiting {
		if p.seen < q.peers[p.Name.Namespace] && slices.ContainsFunc(p.filters, ofPeers) {
			concerned = append(concerned, p)
		} else {
			others = append(others, p)
		}
	}
	slices.SortFunc(concerned, Compare)
	return others, concerned
}

// wakeForOpenings chooses the waiting pods that an opening concerns, and adds them to the shares.
func (q *Queue) wakeForOpenings(
	waiting []*Pod, shares *fairshare.Usage, opening func(scheduler.Place) (Opening, bool),
) (woken []*Pod, more bool) {
	chosen := map[*Pod]struct{}{}
	opened := make([]scheduler.Place, 0, len(q.openings))
	for place := range q.openings {
		opened = append(opened, place)
	}
	// The oldest changes first.
	slices.SortFunc(opened, func(x, y scheduler.Place) int { return cmp.Compare(q.openings[x], q.openings[y]) })
	for i, place := range opened {
		if i > 0 && (i+1)*len(waiting) > maxChecks || len(chosen) >= MaxWoken {
			return woken, true
		}
		at, usable := opening(place)
		var candidates []*Pod
		for _, p := range waiting {
			if usable && !p.awaitsGrant && at.concerns(p, q.openings[place]) && at.roomFor(p).Fits(p.demand) {
				candidates = append(candidates, p)
			}
		}
		left := false
		inTurn(candidates, shares, func(p *Pod) (takes bool) {
			_, already := chosen[p]
			if !already && len(chosen) >= MaxWoken || !at.roomFor(p).Fits(p.demand) {
				left = true
				return false
			}
			at.roomFor(p).Take(p.demand)
			if !already {
				chosen[p] = struct{}{}
				woken = append(woken, p)
			}
			return !already
		})
		if more = more || left; !left {
			delete(q.openings, place)
		}
	}
	return woken, more
}

// Compare puts the pod that has waited longest first.
func Compare(x, y *Pod) int {
	return cmp.Or(x.since.Compare(y.since), strings.Compare(x.Name.Namespace, y.Name.Namespace),
		strings.Compare(x.Name.Name, y.Name.Name))
}
