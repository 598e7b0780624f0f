package state

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/queue"
	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Config is the configuration of a Federation.
type Config struct {
	// Clock is read for the time of observations that carry none.
	Clock clock.PassiveClock
	// MovesAtOnce limits how many pods have left their provider and do not run elsewhere yet.
	MovesAtOnce int
	// SuspicionWindow is the time within which most providers must become unreachable for the broker to suspect itself.
	SuspicionWindow time.Duration
	// SuspicionLimit is how long after it became unreachable a provider counts for that. Later it does not count, like
	// a disabled one, as long as another provider answers. 0 is no limit.
	SuspicionLimit time.Duration
	// ProbeInterval is the time between two probes of a provider.
	ProbeInterval time.Duration
	// ReserveAfter is how long a pod waits, while others take capacity that becomes free, until capacity is reserved
	// for it; with 0 none is reserved.
	ReserveAfter time.Duration
	// ReclaimAfter is how long pods run beyond the grant of their consumer while others have a right to it; with 0 they
	// stay.
	ReclaimAfter time.Duration
}

// Federation is the broker's state: its pods, the providers and their VirtualNodes, as observed and as assumed. It is
// safe for concurrent use. Its zero value is not usable.
type Federation struct {
	cfg Config

	// mu guards all below. No method calls out of this package, those below it and pkg/scheduler while it holds mu.
	mu sync.Mutex
	// scheduler has the providers and the assignments as the scheduler reads them.
	scheduler *scheduler.State
	// pods by UID; byName has the UID of the pod that bears a name now.
	pods   map[types.UID]*pod
	byName map[types.NamespacedName]types.UID
	// earlier are, by namespace and name, pods that are gone and may run where they were.
	earlier map[string]map[string]Earlier
	// grants are the grants of consumers, by id; grown are consumers of which more pods may fit than when they were
	// tried last. predecessors are pods that are gone, by name, whose part of a grant is kept.
	grants       map[string]*scheduler.Grant
	grown        map[string]bool
	predecessors map[types.NamespacedName]predecessor
	// withheld are the amounts that a provider turned out to lack, and until when.
	withheld map[scheduler.Holder]time.Time
	// limit and turns have the pods that wait before they move, queue those that wait for a provider.
	limit *disruption.Limit
	turns *disruption.Turns
	queue *queue.Queue

	// terms are the terms of consumers that have any, by id. wanted has, by provider and consumer, a pod that waited for
	// its capacity when pods were woken last.
	terms  map[string]fairshare.Terms
	wanted map[string]map[string]*pod
	// reclaims are the amounts that users of slices use and others have a right to.
	reclaims map[scheduler.Account]*reclaim

	// reservations are parts of VirtualNodes that are kept free for pods which wait. reservedAgain is until when
	// nothing is reserved at a VirtualNode after a reservation there has expired.
	reservations  map[scheduler.Place]*reservation
	reservedAgain map[scheduler.Place]time.Time

	// providers by cluster id.
	providers map[string]*provider
	// suspectedAt is the end of the last probe at which the broker suspected itself.
	suspectedAt time.Time
}

// New returns a Federation without pods and providers.
func New(cfg Config) *Federation {
	return &Federation{
		cfg: cfg, scheduler: scheduler.NewState(),
		limit: disruption.NewLimit(cfg.MovesAtOnce), turns: disruption.NewTurns(), queue: queue.New(),
		pods: map[types.UID]*pod{}, byName: map[types.NamespacedName]types.UID{}, withheld: map[scheduler.Holder]time.Time{},
		providers: map[string]*provider{}, reservations: map[scheduler.Place]*reservation{}, reservedAgain: map[scheduler.Place]time.Time{},
		earlier: map[string]map[string]Earlier{}, grants: map[string]*scheduler.Grant{}, grown: map[string]bool{},
		predecessors: map[types.NamespacedName]predecessor{},
		terms:        map[string]fairshare.Terms{}, wanted: map[string]map[string]*pod{}, reclaims: map[scheduler.Account]*reclaim{},
	}
}

// Counts describe the whole state in numbers of pods.
type Counts struct {
	// Assigned pods take capacity at a VirtualNode. Unassigned ones fitted no provider when they were tried last.
	Assigned, Unassigned int
	// Moving pods were evicted from a provider and have no other yet. Delayed ones wait for the rate limit of moves,
	// Waiting ones for their replicas.
	Moving, Delayed, Waiting int
	// SuspectsItself means that so many providers became unreachable at once that the broker is more likely cut off
	// than they are.
	SuspectsItself bool
}

// Counts returns how many pods are in which state, and whether the broker suspects itself.
func (f *Federation) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := Counts{Delayed: f.limit.Waiting(), Waiting: f.turns.Waiting(), SuspectsItself: f.suspicious()}
	for id, p := range f.providers {
		for virtualNode := range p.spec.VirtualNodes {
			_, pods := f.scheduler.Assigned(scheduler.Place{Provider: id, VirtualNode: virtualNode})
			counts.Assigned += pods
		}
	}
	for _, p := range f.pods {
		if p.unassigned {
			counts.Unassigned++
		}
		if !p.evictedAt.IsZero() {
			counts.Moving++
		}
	}
	return counts
}
