package belief

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

const (
	// retryInterval is after what time a pod that waits is tried although no change is known that concerns it: criteria may read
	// KPIs. Up to retryJitter is added, by the UID, so that pods that began to wait together are not tried together.
	retryInterval = 30 * time.Second
	retryJitter   = 15 * time.Second
	// maxWoken is how many pods are tried at once because of changes, and maxChecks how many pairs of a pod and a slice are
	// compared while nothing else is decided: the next ones follow.
	maxWoken  = 200
	maxChecks = 50_000
)

// waiting is what is known of a pod that fitted no provider when it was tried last.
type waiting struct {
	// since is when it began to wait: pods get what becomes free in that order.
	since time.Time
	// retryAt is when it is tried at the latest. again means that it is tried next.
	retryAt time.Time
	again   bool
	// seen is the number of the last change that its last try has seen, or for which it was woken.
	seen uint64
	// filters are the verdicts of the last try on the providers, which are sorted and shared by many pods. Both are nil while
	// they are not known.
	providers []string
	filters   []verdict.Filter
	demand    scheduler.Demand
	// readsResources means that its criteria read what is assigned.
	readsResources bool
}

// open takes in that a slice may take more pods.
func (b *Belief) open(virtualNode string) {
	b.changes++
	b.openings[virtualNode] = b.changes
}

// openAll takes in that more than the room of a provider has changed.
func (b *Belief) openAll(p *provider) {
	for i := range p.scheduled.Slices {
		b.open(p.scheduled.Slices[i].VirtualNode)
	}
	p.changed = b.changes
}

// release frees the room of a pod, or of an amount that was withheld.
func (b *Belief) release(uid types.UID) {
	if at := b.state.PlaceOf(uid); at != "" {
		b.open(at)
	}
	b.state.Release(uid)
}

// assign takes the room of a pod, and frees that elsewhere.
func (b *Belief) assign(a scheduler.Assignment) {
	if at := b.state.PlaceOf(a.UID); at != "" && at != a.VirtualNode {
		b.open(at)
	}
	b.state.Assign(a)
}

// beginTry prepares the record of a pod for a decision. What changes during the decision concerns the pod.
func (b *Belief) beginTry(p *pod, of *scheduler.Pod, policy *scheduler.Policy) {
	if !p.unassigned {
		p.waits = waiting{since: b.cfg.Clock.Now()}
	}
	p.waits.providers, p.waits.filters, p.waits.again = nil, nil, false
	p.waits.seen, p.waits.demand = b.changes, b.state.Demand(of.Requests)
	p.waits.readsResources = scheduler.ReadsResources(of, policy)
	p.waits.retryAt = b.cfg.Clock.Now().Add(retryDelay(of.UID))
}

// endTry notes why a pod was not assigned.
func (b *Belief) endTry(p *pod, verdicts []verdict.Verdict) {
	p.waits.providers = b.providersOf(verdicts)
	p.waits.filters = make([]verdict.Filter, len(verdicts))
	for i := range verdicts {
		p.waits.filters[i] = verdicts[i].Filter
	}
}

// providersOf returns the ids in verdicts: those of the last decision, if they are the same.
func (b *Belief) providersOf(verdicts []verdict.Verdict) []string {
	if !slices.EqualFunc(b.decidedOn, verdicts, func(id string, v verdict.Verdict) bool { return id == v.Provider }) {
		b.decidedOn = make([]string, len(verdicts))
		for i := range verdicts {
			b.decidedOn[i] = verdicts[i].Provider
		}
	}
	return b.decidedOn
}

func retryDelay(uid types.UID) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid))
	return retryInterval + time.Duration(hash.Sum64()%uint64(retryJitter))
}

// concerned reports whether a change of the room at a provider concerns a pod that waits: the room was what it lacked there, or
// the provider itself has changed since, and is among those that the pod may use.
func (b *Belief) concerned(w *waiting, provider string, change uint64) bool {
	if w.seen >= change {
		return false
	}
	i, known := slices.BinarySearch(w.providers, provider)
	if !known {
		return true
	}
	changed := w.seen < b.providers[provider].changed
	switch w.filters[i] {
	case verdict.Insufficient, verdict.TooManyPods:
		return true
	case verdict.PolicyFilter, verdict.PodFilter, verdict.Failed:
		return changed || w.readsResources
	case verdict.Origin, verdict.NotSelected, verdict.NotNamed:
		return false
	}
	return changed
}

// Wake returns the unassigned pods to try now, those that wait longest first: those that were not tried for too long, and those
// that a change concerns and for which there is room. For what becomes free no more pods are woken than fit into it: more means
// that others may follow, if these do not take it.
func (b *Belief) Wake() (names []types.NamespacedName, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Clock.Now()
	var unassigned, woken []*pod
	for _, p := range b.pods {
		switch {
		case !p.unassigned:
		case p.waits.again || !p.waits.retryAt.After(now):
			woken = append(woken, p)
		default:
			unassigned = append(unassigned, p)
		}
	}
	woken, more = b.wakeForOpenings(unassigned, woken)
	slices.SortFunc(woken, compareWaiting)
	for _, p := range woken {
		p.waits.again, p.waits.seen, p.waits.retryAt = false, b.changes, now.Add(retryDelay(b.byName[p.name]))
		names = append(names, p.name)
	}
	return names, more
}

// wakeForOpenings adds those of the unassigned pods to woken that an opening concerns.
func (b *Belief) wakeForOpenings(unassigned, woken []*pod) (_ []*pod, more bool) {
	chosen := map[*pod]struct{}{}
	opened := make([]string, 0, len(b.openings))
	for virtualNode := range b.openings {
		opened = append(opened, virtualNode)
	}
	// The oldest changes first.
	slices.SortFunc(opened, func(x, y string) int { return cmp.Compare(b.openings[x], b.openings[y]) })
	for i, virtualNode := range opened {
		if i > 0 && (i+1)*len(unassigned) > maxChecks || len(chosen) >= maxWoken {
			return woken, true
		}
		provider := b.providerOf[virtualNode]
		room, usable := b.state.Room(provider, virtualNode)
		usable = usable && b.providers[provider] != nil
		var candidates []*pod
		for _, p := range unassigned {
			if usable && b.concerned(&p.waits, provider, b.openings[virtualNode]) && room.Fits(p.waits.demand) {
				candidates = append(candidates, p)
			}
		}
		slices.SortFunc(candidates, compareWaiting)
		left := false
		for _, p := range candidates {
			if _, already := chosen[p]; !already && len(chosen) >= maxWoken || !room.Fits(p.waits.demand) {
				left = true
				continue
			}
			room.Take(p.waits.demand)
			if _, already := chosen[p]; !already {
				chosen[p] = struct{}{}
				woken = append(woken, p)
			}
		}
		if more = more || left; !left {
			delete(b.openings, virtualNode)
		}
	}
	return woken, more
}

func compareWaiting(x, y *pod) int {
	return cmp.Or(x.waits.since.Compare(y.waits.since), strings.Compare(x.name.Namespace, y.name.Namespace),
		strings.Compare(x.name.Name, y.name.Name))
}
