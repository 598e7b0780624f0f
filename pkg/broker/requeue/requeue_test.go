package requeue

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// running runs Pods for a provider q of two CPUs, which is known once join is called. drain takes the pods that were
// requeued.
func running(t *testing.T) (known *state.Federation, pods *Pods, join func(), drain func() []string) {
	t.Helper()
	known = state.New(state.Config{Clock: clock.RealClock{}})
	queue := &Queue{}
	work := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	require.NoError(t, queue.Source().Start(t.Context(), work))
	pods = NewPods(queue, nil, known, logr.Discard())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- pods.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
		work.ShutDown()
	})
	join = func() {
		spec := state.ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}
		known.SetProvider("q", spec, &v1alpha1.ProviderClusterStatus{})
		known.Schedule(scheduler.Provider{
			ID: "q", Enabled: true, Ready: true, Namespaces: sets.New("ns"),
			Slices: []scheduler.Slice{{VirtualNode: "q1", Granted: resources.Amounts{corev1.ResourceCPU: 2000}}},
		})
	}
	return known, pods, join, func() (names []string) {
		synctest.Wait()
		for queue.Len() > 0 {
			request, _ := work.Get()
			names = append(names, request.Name)
			work.Done(request)
		}
		return names
	}
}

// Unassigned pods are tried soon after a change that concerns them, and seldom without one.
func TestManyChangesAreOneTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, pods, join, tried := running(t)
		known.Assume(cpus("unassigned", 1), nil)
		time.Sleep(29 * time.Second)
		require.Empty(t, tried(), "nothing changed")
		join()
		for range 1000 {
			pods.Unassigned()
		}
		time.Sleep(2 * unassignedInterval)
		require.Equal(t, []string{"unassigned"}, tried())
		pods.Unassigned()
		time.Sleep(2 * unassignedInterval)
		require.Empty(t, tried(), "nothing has changed since")
		time.Sleep(29 * time.Second)
		require.Empty(t, tried())
		time.Sleep(17 * time.Second)
		require.Equal(t, []string{"unassigned"}, tried(), "a change that is not seen is found now and then")
	})
}

// cpus is a pod that requests so many.
func cpus(name string, cpus int64) *scheduler.Pod {
	return &scheduler.Pod{
		UID: types.UID(name), Namespace: "ns", Name: name,
		Requests: resources.Amounts{corev1.ResourceCPU: 1000 * cpus, corev1.ResourcePods: 1},
	}
}

// Pods that fit nowhere are not tried again with each pod that ends.
func TestPodsThatFitNowhereAreNotTriedWithEachPodThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiting, long = 3000, time.Minute
		known, pods, join, drain := running(t)
		join()
		d := known.Assume(cpus("short", 1), nil)
		for i := range waiting {
			d = known.Assume(cpus(strconv.Itoa(i), 3), nil)
			require.Empty(t, d.Provider)
		}
		decisions, tried := 0, sets.New[string]()
		for began := time.Now(); time.Since(began) < long; time.Sleep(unassignedInterval) {
			known.ObserveGone(types.NamespacedName{Namespace: "ns", Name: "short"}, "short")
			pods.Unassigned()
			d = known.Assume(cpus("short", 1), nil)
			require.Equal(t, "q1", d.VirtualNode)
			for _, name := range drain() {
				d = known.Assume(cpus(name, 3), nil)
				tried.Insert(name)
				decisions++
			}
		}
		t.Logf("%d decisions about %d waiting pods within %s", decisions, waiting, long)
		require.LessOrEqual(t, decisions, 2*waiting)
		require.Len(t, tried, waiting, "none is forgotten")
	})
}

func TestAQueueWithoutAControllerDropsKeys(t *testing.T) {
	var queue Queue
	require.NotPanics(t, func() { queue.Add(types.NamespacedName{Name: "early"}) })
	require.Zero(t, queue.Len())
}
