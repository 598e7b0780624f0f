package view

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

// nextOf returns the changes of Next as text.
func nextOf(t *testing.T, s *Subscription) []string {
	changes, err := s.Next(t.Context())
	require.NoError(t, err)
	var short []string
	for _, c := range changes {
		switch data := c.Data.(type) {
		case *api.Provider:
			short = append(short, c.Event+" "+data.ID)
		case *api.Placement:
			short = append(short, c.Event+" "+data.Namespace+"/"+data.Pod)
		case api.Gone:
			short = append(short, c.Event+" "+data.ID+data.Namespace+"/"+data.Pod)
		default:
			short = append(short, c.Event)
		}
	}
	return short
}

func TestChangesInQuickSuccessionAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(Config{})
		f.sees(cluster("p1"))
		s := f.Subscribe(Scope{All: true}, "")
		defer s.Close()
		began := time.Now()
		f.sees(cluster("p2"))
		require.Equal(t, []string{"sync"}, nextOf(t, s), "earlier objects must be listed")
		require.Zero(t, time.Since(began))

		time.Sleep(time.Second)
		began = time.Now()
		f.sees(podIn("a", "x"))
		require.Equal(t, []string{"placement a/x"}, nextOf(t, s))
		require.Zero(t, time.Since(began), "a lone change is sent at once")

		f.sees(podIn("b", "y"), podIn("a", "x", assigned("p1", 1)), cluster("p2", disabled), cluster("p1", disabled))
		f.sees(podIn("b", "y", assigned("p1", 1)))
		f.misses(cluster("p2"))
		require.Equal(t, []string{"provider p1", "provider-gone p2/", "placement a/x", "placement b/y"}, nextOf(t, s))
		require.Equal(t, pause, time.Since(began), "others are joined, each object once")

		go func() {
			time.Sleep(10 * time.Second)
			f.sees(cluster("p1"))
		}()
		require.Equal(t, []string{"provider p1"}, nextOf(t, s))
		require.Equal(t, 10*time.Second+pause, time.Since(began), "nothing is sent while nothing changes")
	})
}

func disabled(pc *v1alpha1.ProviderCluster) { pc.Spec.Enabled = ptr.To(false) }

func TestUnchangedObjectsAreNotSent(t *testing.T) {
	f := newFed(Config{})
	f.sees(cluster("p1"), podIn("a", "x"), namespaceOf("a", "c1"), selectionOf("c1", "", "p1"))
	s := f.Subscribe(Scope{All: true}, "c1")
	defer s.Close()
	require.Equal(t, []string{"sync"}, nextOf(t, s))

	f.sees(cluster("p1", func(pc *v1alpha1.ProviderCluster) { pc.Generation, pc.ResourceVersion = 7, "9" }))
	f.sees(podIn("a", "x", func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }), namespaceOf("a", "c1"))
	f.sees(virtualNodeOf("v", "p1", nil), selectionOf("c1", v1alpha1.SelectAllBut, "p1"), policyFor("team", "c1"))
	require.False(t, s.pending())
	f.sees(selectionOf("c1", v1alpha1.SelectOnly, "p1"))
	require.True(t, s.pending())
}

func TestANamespaceThatChangesHandsIsGoneForItsFirstOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(Config{})
		f.sees(namespaceOf("team", "c1"), podIn("team", "x"), podIn("other", "y"))
		first, second := f.Subscribe(Scope{Consumer: "c1"}, "c1"), f.Subscribe(Scope{Consumer: "c2"}, "c2")
		stranger, operator := f.Subscribe(Scope{}, ""), f.Subscribe(Scope{All: true}, "")
		for _, s := range []*Subscription{first, second, stranger, operator} {
			defer s.Close()
			require.Equal(t, []string{"sync"}, nextOf(t, s))
		}
		f.sees(namespaceOf("team", "c2"))
		require.Equal(t, []string{"placement-gone team/x"}, nextOf(t, first))
		require.Equal(t, []string{"placement team/x"}, nextOf(t, second))
		require.Equal(t, []string{"placement team/x"}, nextOf(t, operator))
		require.False(t, stranger.pending())
		list, err := f.Placements(PlacementQuery{Scope: Scope{Consumer: "c1"}})
		require.NoError(t, err)
		require.Empty(t, list.Items)

		f.sees(podIn("team", "x", assigned("p1", 1)))
		require.False(t, first.pending(), "what becomes of it does not concern the first one")
		f.misses(namespaceOf("team", "c2"))
		require.Equal(t, []string{"placement-gone team/x"}, nextOf(t, second))
	})
}

func TestASelectionIsSentToItsConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(Config{})
		f.sees(cluster("p1"), cluster("p2"), cluster("p3"))
		mine, others := f.Subscribe(Scope{Consumer: "c1"}, "c1"), f.Subscribe(Scope{All: true}, "")
		defer mine.Close()
		defer others.Close()
		require.Equal(t, []string{"sync"}, nextOf(t, mine))
		require.Equal(t, []string{"sync"}, nextOf(t, others))

		f.sees(selectionOf("c1", v1alpha1.SelectAllBut, "p2"))
		changes, err := mine.Next(t.Context())
		require.NoError(t, err)
		require.Len(t, changes, 1, "the others are selected as before")
		require.Equal(t, "p2", changes[0].Data.(*api.Provider).ID)
		require.Equal(t, ptr.To(false), changes[0].Data.(*api.Provider).Selected)
		f.sees(selectionOf("c1", v1alpha1.SelectOnly, "p2"))
		require.Equal(t, []string{"provider p1", "provider p2", "provider p3"}, nextOf(t, mine))
		f.misses(selectionOf("c1", v1alpha1.SelectOnly, "p2"))
		require.Equal(t, []string{"provider p1", "provider p3"}, nextOf(t, mine))
		require.False(t, others.pending())
	})
}

func TestASlowReaderBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(Config{})
		s := f.Subscribe(Scope{All: true}, "")
		defer s.Close()
		require.Equal(t, []string{"sync"}, nextOf(t, s))
		for i := range 10 * slack {
			pod := podIn("a", fmt.Sprint("x", i))
			f.sees(pod)
			f.misses(pod)
			require.LessOrEqual(t, len(s.placements), slack+1)
		}
		f.sees(podIn("a", "last"))
		require.Equal(t, []string{"sync"}, nextOf(t, s), "everything must be listed")
		f.sees(podIn("a", "next"))
		require.Equal(t, []string{"placement a/next"}, nextOf(t, s))
	})
}

func TestAStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFed(Config{})
		s := f.Subscribe(Scope{All: true}, "")
		require.Equal(t, []string{"sync"}, nextOf(t, s))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		f.sees(cluster("p1"))
		require.Equal(t, []string{"provider p1"}, nextOf(t, s))
		f.sees(cluster("p1", disabled))
		go func() {
			time.Sleep(pause / 2)
			s.Close()
			s.Close()
		}()
		_, err = s.Next(t.Context())
		require.ErrorIs(t, err, ErrClosed, "it was waiting for more")
		_, err = s.Next(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.Empty(t, f.subscriptions)
	})
}

func TestManyMayAskWhileItChanges(t *testing.T) {
	f := newFed(Config{})
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 2 {
		s := f.Subscribe(Scope{All: true}, "c1")
		group.Go(func() {
			defer s.Close()
			for {
				if _, err := s.Next(ctx); err != nil {
					return
				}
			}
		})
		group.Go(func() {
			for ctx.Err() == nil {
				readAnswers(t, f, i)
			}
		})
	}
	for i := range 300 {
		id, namespace := fmt.Sprint("p", i%5), fmt.Sprint("n", i%3)
		f.sees(cluster(id), namespaceOf(namespace, fmt.Sprint("c", i%4)), podIn(namespace, fmt.Sprint("x", i%20), assigned(id, i)))
		f.sees(selectionOf("c1", "", id), virtualNodeOf("v", id, map[string]string{"n": fmt.Sprint(i)}))
		f.mu.Lock()
		f.providers.sample(noon, 5)
		f.mu.Unlock()
		if i%7 == 0 {
			f.misses(cluster(id), podIn(namespace, fmt.Sprint("x", i%20)), namespaceOf(namespace, ""))
		}
	}
	cancel()
	group.Wait()
}

// readAnswers lets the race detector find data that changes while it is read.
func readAnswers(t *testing.T, f *fed, i int) {
	providers, err := f.Providers(ProviderQuery{Consumer: "c1", Page: Page{Limit: 3}})
	require.NoError(t, err)
	placements, err := f.Placements(PlacementQuery{Scope: Scope{Consumer: fmt.Sprint("c", i)}})
	require.NoError(t, err)
	history, _ := f.History("p1")
	policies, err := f.Policies(Scope{All: true}, Page{})
	require.NoError(t, err)
	_, err = json.Marshal([]any{providers, placements, history, policies, f.Flows(Scope{All: true})})
	require.NoError(t, err)
}

// Subscriptions with the same scope share its JSON. A consumer sees its own selection, and the JSON of a change is not
// the previous JSON.
func TestSubscriptionsShareJSON(t *testing.T) {
	f := newFed(Config{})
	scopes := map[string]Scope{"": {All: true}, "c1": {Consumer: "c1"}}
	var subs []*Subscription
	for _, consumer := range []string{"", "", "c1"} {
		s := f.Subscribe(scopes[consumer], consumer)
		defer s.Close()
		s.takeChanges()
		subs = append(subs, s)
	}
	f.sees(namespaceOf("team", "c1"))
	var before *api.Encoded
	for _, price := range []string{"1", "2"} {
		f.sees(cluster("p", func(pc *v1alpha1.ProviderCluster) { pc.Spec.Attributes = map[string]string{"price": price} }))
		f.sees(podIn("team", "web", assigned("p"+price, 84)))
		var of [][]Change
		for _, s := range subs {
			changes := s.takeChanges()
			require.Len(t, changes, 2)
			for _, c := range changes {
				want, err := json.Marshal(c.Data)
				require.NoError(t, err)
				got, err := c.Encoded.JSON(c.Data)
				require.NoError(t, err)
				require.Equal(t, string(want), string(got))
			}
			of = append(of, changes)
		}
		require.Same(t, of[0][0].Encoded, of[1][0].Encoded)
		require.Same(t, of[0][0].Data, of[1][0].Data, "a copy for each of a thousand streams takes more memory than the streams")
		require.Same(t, of[0][1].Data, of[1][1].Data)
		require.Same(t, of[0][1].Encoded, of[1][1].Encoded)
		require.NotSame(t, of[0][0].Encoded, of[0][0].Public)
		require.Nil(t, of[2][0].Encoded)
		require.NotSame(t, before, of[0][0].Encoded)
		before = of[0][0].Encoded
	}
}
