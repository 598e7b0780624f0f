package view

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view/podindex"
	"github.com/capacitorset/liqo-broker-vk/pkg/informers"
)

const (
	// pause is the least time between two results of Next: changes in between are joined.
	pause = 200 * time.Millisecond
	// slack is the number of pending changes allowed in addition to one for each object: for objects that were removed.
	slack = 1000
)

// ErrClosed means that a subscription was closed.
var ErrClosed = errors.New("subscription closed")

// Change is a change of the federation.
type Change struct {
	// Event is an event name of package api.
	Event string
	// Data is the data of the event: a pointer to an object, or an api.Gone, or an api.Sync, in which the caller sets
	// the version. The object is read-only: all subscriptions share it.
	Data any
	// Encoded and Public are the JSON of Data and of its public part for anonymous callers, shared with other
	// subscriptions; nil if others see other data.
	Encoded, Public *api.Encoded
}

// Subscription receives the changes in its scope. It stores names only, at most one for each object and some for
// removed ones. For a reader that falls further behind it drops them and starts again with api.EventSync.
type Subscription struct {
	view     *View
	scope    Scope
	consumer string
	// wake has an item if changes may be pending.
	wake      chan struct{}
	closed    chan struct{}
	closeOnce sync.Once
	// last is the time when Next returned; only its one caller uses it.
	last time.Time

	// mu guards all below. It is locked while the view's lock is held, never the other way round.
	mu sync.Mutex
	// sync means that the reader must list everything, so that no other change needs to be pending.
	sync       bool
	providers  map[string]struct{}
	placements map[types.NamespacedName]struct{}
}

// Subscribe starts a stream of changes: of all providers, with Selected if there is a consumer, and of the placements
// in the scope. The caller closes it.
func (v *View) Subscribe(s Scope, consumer string) *Subscription {
	sub := &Subscription{
		view: v, scope: s, consumer: consumer, sync: true,
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	sub.reset()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.subscriptions[sub] = struct{}{}
	return sub
}

// Close ends the stream, and a Next that waits.
func (s *Subscription) Close() {
	s.closeOnce.Do(func() {
		s.view.mu.Lock()
		delete(s.view.subscriptions, s)
		s.view.mu.Unlock()
		close(s.closed)
	})
}

// Next waits for changes, and returns each changed object once, in its current state: providers by id, then placements
// by name. The first result is api.EventSync, after which the reader must list everything. It may come again. A single
// change is returned at once, further ones 200 ms after the last result at the earliest. One goroutine calls it at a
// time. The error is ErrClosed, or the error of ctx if nothing changed.
func (s *Subscription) Next(ctx context.Context) ([]Change, error) {
	for !s.pending() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.closed:
			return nil, ErrClosed
		case <-s.wake:
		}
	}
	if wait := pause - s.view.cfg.Clock.Since(s.last); wait > 0 {
		timer := s.view.cfg.Clock.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.closed:
			return nil, ErrClosed
		case <-timer.C():
		}
	}
	select {
	case <-s.closed:
		return nil, ErrClosed
	default:
	}
	changes := s.takeChanges()
	s.last = s.view.cfg.Clock.Now()
	return changes, nil
}

func (s *Subscription) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sync || len(s.providers)+len(s.placements) > 0
}

// takeChanges removes the pending names, and reads their objects.
func (s *Subscription) takeChanges() []Change {
	s.mu.Lock()
	if s.sync {
		// Later changes will be pending; the reader is about to read the earlier ones.
		s.sync = false
		s.mu.Unlock()
		return []Change{{Event: api.EventSync, Data: api.Sync{}}}
	}
	ids, names := slices.Sorted(maps.Keys(s.providers)), slices.SortedFunc(maps.Keys(s.placements), informers.Compare)
	s.reset()
	s.mu.Unlock()

	providers, pods := make([]*provider, len(ids)), make([]*podindex.Pod, len(names))
	s.view.mu.RLock()
	selection := s.view.policies.selections[s.consumer]
	for i, id := range ids {
		providers[i] = s.view.providers.get(id)
	}
	for i, name := range names {
		pods[i] = s.view.pods.Get(name)
	}
	s.view.mu.RUnlock()

	changes := make([]Change, 0, len(ids)+len(names))
	for i, id := range ids {
		if providers[i] == nil {
			changes = append(changes, Change{Event: api.EventProviderGone, Data: api.Gone{ID: id}})
			continue
		}
		if s.consumer != "" { // A consumer sees which it selected.
			shown := providers[i].shownTo(s.consumer, selection)
			changes = append(changes, Change{Event: api.EventProvider, Data: &shown})
			continue
		}
		changes = append(changes, Change{
			Event: api.EventProvider, Data: &providers[i].shown, Encoded: &providers[i].encoded, Public: &providers[i].public,
		})
	}
	for i, name := range names {
		if pods[i] == nil || !s.scope.sees(&pods[i].Shown) {
			changes = append(changes, Change{Event: api.EventPlacementGone, Data: api.Gone{Namespace: name.Namespace, Pod: name.Name}})
			continue
		}
		changes = append(changes, Change{Event: api.EventPlacement, Data: &pods[i].Shown, Encoded: pods[i].Encoded})
	}
	return changes
}

// reset drops the pending changes. It makes new maps, because a map never shrinks. The caller holds mu.
func (s *Subscription) reset() {
	s.providers, s.placements = map[string]struct{}{}, map[types.NamespacedName]struct{}{}
}

// add makes a change pending; objects is the number of objects.
func (s *Subscription) add(objects int, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sync {
		return
	}
	change()
	if len(s.providers)+len(s.placements) > objects+slack {
		s.reset()
		s.sync = true
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// The caller of the following methods holds the view's lock.

func (v *View) objects() int { return v.providers.byID.Len() + v.pods.Len() }

func (v *View) publishProvider(id string) {
	for s := range v.subscriptions {
		s.add(v.objects(), func() { s.providers[id] = struct{}{} })
	}
}

// publishSelection publishes to a consumer the providers that it selected or deselected.
func (v *View) publishSelection(consumer string, ids []string) {
	for s := range v.subscriptions {
		if s.consumer != consumer {
			continue
		}
		for _, id := range ids {
			s.add(v.objects(), func() { s.providers[id] = struct{}{} })
		}
	}
}

// publishPlacement publishes to the scopes that see a pod, or saw it before; either is nil if there is none.
func (v *View) publishPlacement(before, after *podindex.Pod) {
	for s := range v.subscriptions {
		if before != nil && s.scope.sees(&before.Shown) || after != nil && s.scope.sees(&after.Shown) {
			name := cmp.Or(after, before).Name()
			s.add(v.objects(), func() { s.placements[name] = struct{}{} })
		}
	}
}
