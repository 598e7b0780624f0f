package restore

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// lists is a reader whose lists it makes.
type lists struct {
	client.Reader
	list func(*client.ListOptions) ([]corev1.Pod, string, error)
	// virtualNodes returns the VirtualNodes; with nil there are none.
	virtualNodes func() []offloadingv1beta1.VirtualNode
	// namespaceMap and provider are the resourceVersions of the only one; with nil there is none.
	namespaceMap, provider func() int
}

func (l lists) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var of client.ListOptions
	of.ApplyOptions(options)
	var err error
	switch list := into.(type) {
	case *corev1.PodList:
		list.Items, list.Continue, err = l.list(&of)
	case *offloadingv1beta1.VirtualNodeList:
		if l.virtualNodes != nil {
			list.Items = l.virtualNodes()
		}
	case *offloadingv1beta1.NamespaceMapList:
		if l.namespaceMap != nil {
			list.Items = []offloadingv1beta1.NamespaceMap{{ObjectMeta: atVersion(l.namespaceMap())}}
		}
	case *v1alpha1.ProviderClusterList:
		if l.provider != nil {
			list.Items = []v1alpha1.ProviderCluster{{ObjectMeta: atVersion(l.provider())}}
		}
	}
	return err
}

func atVersion(version int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "only", UID: "only", ResourceVersion: strconv.Itoa(version)}
}

// showing lists pods.
func showing(pods ...corev1.Pod) func(*client.ListOptions) ([]corev1.Pod, string, error) {
	return func(*client.ListOptions) ([]corev1.Pod, string, error) { return pods, "", nil }
}

func named(name string, change ...func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name),
		Labels: map[string]string{v1alpha1.VirtualNodeLabel: "q1", v1alpha1.ProviderLabel: "q"},
	}}
	for _, c := range change {
		c(&pod)
	}
	return pod
}

func unassigned(pod *corev1.Pod) { pod.Labels = nil }

// restored is a Restorer of the node pool, and how many pods it has counted at q1.
func restored(live, cache *lists) (counted func() int, restore func(context.Context) error) {
	known := state.New(state.Config{Clock: clock.RealClock{}})
	known.SetProvider("q", state.ProviderSpec{VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{})
	known.Schedule(scheduler.Provider{ID: "q"})
	return func() int { return known.Counts().Assigned }, New(live, cache, "pool", known, clock.RealClock{}).Restore
}

// The previous leader assigned a pod a moment ago. The cache shows it as unassigned.
func TestWhatTheCacheDoesNotShowYetIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var current atomic.Bool
		live, cache := &lists{list: showing(named("a"), named("b"))}, &lists{list: func(*client.ListOptions) ([]corev1.Pod, string, error) {
			if current.Load() {
				return []corev1.Pod{named("a"), named("b")}, "", nil
			}
			return []corev1.Pod{named("a"), named("b", unassigned)}, "", nil
		}}
		counted, restore := restored(live, cache)
		done := make(chan error, 2)
		for range cap(done) {
			go func() { done <- restore(t.Context()) }()
		}
		synctest.Wait()
		require.Empty(t, done, "b would be assigned again")
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, restore(impatient), context.DeadlineExceeded)
		current.Store(true)
		for range cap(done) {
			require.NoError(t, <-done)
		}
		require.Equal(t, 2, counted())
		live.list = nil
		require.NoError(t, restore(t.Context()), "once")
	})
}

// The previous leader began to move a pod a moment ago. The cache shows it at its provider, as one of its available
// replicas.
func TestAMoveThatTheCacheDoesNotShowYetIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moving := named("a", unassigned, func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{v1alpha1.MovingFromAnnotation: "q1", v1alpha1.MovingFromProviderAnnotation: "q"}
		})
		live, cache := &lists{list: showing(moving)}, &lists{list: showing(named("a"))}
		counted, restore := restored(live, cache)
		require.ErrorIs(t, restore(t.Context()), errCacheLags)
		cache.list = showing(moving)
		require.NoError(t, restore(t.Context()))
		require.Equal(t, 1, counted())
	})
}

func TestACacheThatStaysBehindIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, cache := &lists{list: showing(named("a"))}, &lists{list: showing()}
		counted, restore := restored(live, cache)
		require.ErrorIs(t, restore(t.Context()), errCacheLags)
		require.Zero(t, counted())
		live.list = func(*client.ListOptions) ([]corev1.Pod, string, error) { return nil, "", errors.New("no answer") }
		require.ErrorContains(t, restore(t.Context()), "no answer")
		live.list = showing(named("a"))
		cache.list = showing(named("a"))
		require.NoError(t, restore(t.Context()), "it is tried again")
		require.Equal(t, 1, counted())
	})
}

// Pods of a busy cluster end between two lists. That must not delay a new leader.
func TestPodsThatEndMeanwhileAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0 // Every list shows one pod less.
		from := func(first int) (pods []corev1.Pod) {
			for i := first; i < 100; i++ {
				pods = append(pods, named(strconv.Itoa(i)))
			}
			return pods
		}
		next := &lists{list: func(*client.ListOptions) ([]corev1.Pod, string, error) {
			ended++
			return from(ended), "", nil
		}}
		counted, restore := restored(next, next)
		began := time.Now()
		require.NoError(t, restore(t.Context()))
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, len(from(ended)), counted())
	})
}

func TestThePodsOfTheNodeAreReadInChunksOfOneConsistentList(t *testing.T) {
	gone := named("done")
	gone.Status.Phase = corev1.PodSucceeded
	live := &lists{list: func(o *client.ListOptions) ([]corev1.Pod, string, error) {
		require.Equal(t, "spec.nodeName=pool", o.FieldSelector.String())
		require.EqualValues(t, restoreChunk, o.Limit)
		require.Nil(t, o.Raw, "a resourceVersion would allow an old list")
		if o.Continue == "" {
			return []corev1.Pod{named("a"), gone}, "more", nil
		}
		require.Equal(t, "more", o.Continue)
		return []corev1.Pod{named("b"), named("c", unassigned)}, "", nil
	}}
	counted, restore := restored(live, &lists{list: showing(named("a"), named("b"), gone)})
	require.NoError(t, restore(t.Context()))
	require.Equal(t, 2, counted(), "one that has ended takes room, and is no pod of its provider")
}

// Liqo made a VirtualNode, and the previous leader assigned a pod to it. The cache shows the pod, and not the
// VirtualNode.
func TestAVirtualNodeThatTheCacheDoesNotShowYetIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := []offloadingv1beta1.VirtualNode{{ObjectMeta: metav1.ObjectMeta{Name: "q1", UID: "q1", ResourceVersion: "2"}}}
		shown := []offloadingv1beta1.VirtualNode{{ObjectMeta: metav1.ObjectMeta{Name: "q1", UID: "q1", ResourceVersion: "1"}}}
		var current atomic.Pointer[[]offloadingv1beta1.VirtualNode]
		current.Store(&[]offloadingv1beta1.VirtualNode{})
		live := &lists{list: showing(named("a")), virtualNodes: func() []offloadingv1beta1.VirtualNode { return made }}
		cache := &lists{list: showing(named("a")), virtualNodes: func() []offloadingv1beta1.VirtualNode { return *current.Load() }}
		counted, restore := restored(live, cache)
		done := make(chan error, 1)
		go func() { done <- restore(t.Context()) }()
		for _, lagging := range [][]offloadingv1beta1.VirtualNode{nil, shown} {
			current.Store(&lagging)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			require.Empty(t, done)
			require.Zero(t, counted())
		}
		current.Store(&made)
		require.NoError(t, <-done)
		require.Equal(t, 1, counted())
	})
}

// A consumer writes its NamespaceMap all the time, which the cache shows a moment later. It does not keep all others
// from a leader.
func TestWhatChangesAllTheTimeIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		version := func() int { return 100 + int(time.Since(began)/time.Millisecond) }
		live := &lists{list: showing(named("a")), namespaceMap: version}
		cache := &lists{list: showing(named("a")), namespaceMap: func() int { return version() - 40 }}
		counted, restore := restored(live, cache)
		require.NoError(t, restore(t.Context()))
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, 1, counted())
	})
}

// It is deleted while the cache does not show it yet.
func TestWhatIsGoneMeanwhileIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		live, cache := &lists{list: showing(), virtualNodes: func() []offloadingv1beta1.VirtualNode {
			if asked++; asked > 1 {
				return nil
			}
			return []offloadingv1beta1.VirtualNode{{ObjectMeta: atVersion(7)}}
		}}, &lists{list: showing()}
		_, restore := restored(live, cache)
		require.NoError(t, restore(t.Context()))
	})
}

// The previous leader wrote a moment ago that pods it moved away may still run at a provider.
func TestAProviderClusterThatTheCacheDoesNotShowYetIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var current atomic.Int64
		live := &lists{list: showing(), provider: func() int { return 10 }}
		cache := &lists{list: showing(), provider: func() int { return int(current.Load()) }}
		current.Store(9)
		_, restore := restored(live, cache)
		require.ErrorIs(t, restore(t.Context()), errCacheLags)
		current.Store(10)
		require.NoError(t, restore(t.Context()))
	})
}
