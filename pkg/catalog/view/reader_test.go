package view

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/informers"
)

// reader is a client that lists everything after a sync event, and then follows the stream.
type reader struct {
	*Subscription
	providers  map[string]api.Provider
	placements map[types.NamespacedName]api.Placement
	// allowed are the pods that could be seen at any time: the reader must get no others.
	allowed map[types.NamespacedName]bool
}

func nameOf(p *api.Placement) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Pod}
}

// remember notes which pods each reader may see.
func (w *world) remember() {
	for _, r := range w.readers {
		for _, p := range w.truePlacements(func(p *api.Placement) bool { return mayBeSeen(r.scope, p) }) {
			r.allowed[nameOf(&p)] = true
		}
	}
}

func (w *world) read(t *rapid.T, r *reader) {
	w.clock.Step(pause)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		changes, err := r.Next(ended)
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			break
		}
		require.NotEmpty(t, changes)
		for i, c := range changes {
			require.True(t, i == 0 || c.Event != api.EventSync, "no event precedes a sync")
			r.apply(t, w, c)
		}
		w.clock.Step(pause)
	}
	require.Equal(t, w.trueProviders(r.consumer), values(r.providers, strings.Compare))
	require.Equal(t, w.truePlacements(func(p *api.Placement) bool { return mayBeSeen(r.scope, p) }),
		values(r.placements, informers.Compare))
}

// values returns the values of a map in the order of its keys.
func values[K comparable, V any](of map[K]V, order func(x, y K) int) []V {
	list := []V{}
	for _, key := range slices.SortedFunc(maps.Keys(of), order) {
		list = append(list, of[key])
	}
	return list
}

func (r *reader) apply(t *rapid.T, w *world, c Change) {
	switch data := c.Data.(type) {
	case api.Sync:
		require.Equal(t, api.EventSync, c.Event)
		r.providers, r.placements = map[string]api.Provider{}, map[types.NamespacedName]api.Placement{}
		all, err := w.Providers(ProviderQuery{Consumer: r.consumer})
		require.NoError(t, err)
		for _, p := range all.Items {
			r.providers[p.ID] = p
		}
		pods, err := w.Placements(PlacementQuery{Scope: r.scope})
		require.NoError(t, err)
		for _, p := range pods.Items {
			r.placements[nameOf(&p)] = p
		}
	case *api.Provider:
		require.Equal(t, api.EventProvider, c.Event)
		r.providers[data.ID] = *data
	case *api.Placement:
		require.Equal(t, api.EventPlacement, c.Event)
		require.True(t, mayBeSeen(r.scope, data), "%+v may not see %+v", r.scope, data)
		r.placements[nameOf(data)] = *data
	case api.Gone:
		if c.Event == api.EventProviderGone {
			delete(r.providers, data.ID)
			return
		}
		require.Equal(t, api.EventPlacementGone, c.Event)
		name := types.NamespacedName{Namespace: data.Namespace, Name: data.Pod}
		require.True(t, r.allowed[name], "%+v may not hear of %s", r.scope, name)
		delete(r.placements, name)
	default:
		t.Fatalf("%s carries %T", c.Event, c.Data)
	}
}
