package federation

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
	"github.com/capacitorset/liqo-broker-vk/pkg/follow"
)

const (
	// pause is the least time between two answers of Next: what changes meanwhile is joined.
	pause = 200 * time.Millisecond
	// slack is how many more changes than there are objects a reader may fall behind, by objects that are gone.
	slack = 1000
)

// ErrClosed says that a subscription was closed.
var ErrClosed = errors.New("subscription closed")

// Change is something new in the federation.
type Change struct {
	// Event is one of package api's.
	Event string
	// Data is what package api says of the event. The version in a Sync is left to the caller.
	Data any
}

// Subscription hears of what changes in its scope. It keeps names only, of which there are never more than objects, but
// for some that are gone; for a reader that falls further behind it forgets them and begins anew with api.EventSync.
type Subscription struct {
	view     *View
	scope    Scope
	consumer string
	// wake holds something if there may be something pending.
	wake      chan struct{}
	closed    chan struct{}
	closeOnce sync.Once
	// last is when Next returned; only its one caller uses it.
	last time.Time

	// mu guards what is pending. It is taken with the view's lock held, never the other way round.
	mu sync.Mutex
	// sync says that all is to be read anew, so that nothing else need be told.
	sync       bool
	providers  map[string]struct{}
	placements map[types.NamespacedName]struct{}
}

// Subscribe begins a stream of changes: providers for everybody, with Selected for a consumer if there is one, and the
// placements in the scope. It is to be closed.
func (v *View) Subscribe(s Scope, consumer string) *Subscription {
	sub := &Subscription{
		view: v, scope: s, consumer: consumer, sync: true,
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
		providers: map[string]struct{}{}, placements: map[types.NamespacedName]struct{}{},
	}
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

// Next waits until something has changed, and returns each object that has, once, as it is now: the providers by id,
// then the placements by name. The first answer is api.EventSync, after which all is to be read; it may come again. A
// lone change is returned at once, others 200 ms after the last at the earliest. One goroutine calls it at a time. The
// error is ErrClosed, or that of ctx if nothing was to be told.
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
	changes := s.take()
	s.last = s.view.cfg.Clock.Now()
	return changes, nil
}

func (s *Subscription) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sync || len(s.providers)+len(s.placements) > 0
}

// take empties what is pending, and reads it.
func (s *Subscription) take() []Change {
	s.mu.Lock()
	if s.sync {
		// What changes from here on is told; what changed until here will be read.
		s.sync = false
		s.mu.Unlock()
		return []Change{{Event: api.EventSync, Data: api.Sync{}}}
	}
	ids, names := slices.Sorted(maps.Keys(s.providers)), slices.SortedFunc(maps.Keys(s.placements), follow.Compare)
	s.forget()
	s.mu.Unlock()

	known, placed := make([]*known, len(ids)), make([]*placed, len(names))
	s.view.mu.RLock()
	chosen := s.view.policies.chosen[s.consumer]
	for i, id := range ids {
		known[i] = s.view.providers.get(id)
	}
	for i, name := range names {
		placed[i] = s.view.placements.get(name)
	}
	s.view.mu.RUnlock()

	changes := make([]Change, 0, len(ids)+len(names))
	for i, id := range ids {
		if known[i] == nil {
			changes = append(changes, Change{api.EventProviderGone, api.Gone{ID: id}})
			continue
		}
		changes = append(changes, Change{api.EventProvider, known[i].to(s.consumer, chosen)})
	}
	for i, name := range names {
		if placed[i] == nil || !s.scope.sees(&placed[i].shown) {
			changes = append(changes, Change{api.EventPlacementGone, api.Gone{Namespace: name.Namespace, Pod: name.Name}})
			continue
		}
		changes = append(changes, Change{api.EventPlacement, copyPlacement(&placed[i].shown)})
	}
	return changes
}

// forget needs mu. New maps, because those of a burst would stay as large as it was.
func (s *Subscription) forget() {
	s.providers, s.placements = map[string]struct{}{}, map[types.NamespacedName]struct{}{}
}

// note makes something pending, of so many objects that there are.
func (s *Subscription) note(objects int, add func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sync {
		return
	}
	add()
	if len(s.providers)+len(s.placements) > objects+slack {
		s.forget()
		s.sync = true
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// What follows needs the view's lock.

func (v *View) objects() int { return v.providers.byID.Len() + v.placements.all.Len() }

func (v *View) publishProvider(id string) {
	v.revision++
	for s := range v.subscriptions {
		s.note(v.objects(), func() { s.providers[id] = struct{}{} })
	}
}

// publishChoice tells a consumer of the providers that it selected, or no longer.
func (v *View) publishChoice(consumer string, ids []string) {
	v.revision++
	for s := range v.subscriptions {
		if s.consumer != consumer {
			continue
		}
		for _, id := range ids {
			s.note(v.objects(), func() { s.providers[id] = struct{}{} })
		}
	}
}

// publishPlacement tells those who may see a placement, or might until now; either is nil if there is none.
func (v *View) publishPlacement(before, after *placed) {
	for s := range v.subscriptions {
		if before != nil && s.scope.sees(&before.shown) || after != nil && s.scope.sees(&after.shown) {
			name := cmp.Or(after, before).name()
			s.note(v.objects(), func() { s.placements[name] = struct{}{} })
		}
	}
}
