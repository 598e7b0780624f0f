package requeue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Unassigned pods are tried soon after a change, not once for every change, and not at all without one.
func TestManyChangesAreOneTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := belief.New(belief.Config{Clock: clock.RealClock{}})
		unassigned := types.NamespacedName{Namespace: "ns", Name: "unassigned"}
		known.Decide(&scheduler.Pod{UID: "uid", Namespace: "ns", Name: "unassigned"}, nil, &scheduler.Decision{})
		queue := &Queue{}
		work := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		require.NoError(t, queue.Source().Start(t.Context(), work))
		pods := NewPods(queue, nil, known, logr.Discard())
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- pods.Run(ctx) }()
		tried := func() (count int) {
			synctest.Wait()
			for ; queue.Len() > 0; count++ {
				request, _ := work.Get()
				require.Equal(t, unassigned, request.NamespacedName)
				work.Done(request)
			}
			return count
		}

		time.Sleep(retryInterval - time.Second)
		require.Zero(t, tried(), "nothing changed")
		for range 1000 {
			pods.Unassigned()
		}
		require.Equal(t, 1, tried())
		pods.Unassigned()
		require.Zero(t, tried(), "not yet")
		time.Sleep(2 * unassignedInterval)
		require.Equal(t, 1, tried(), "but soon")
		time.Sleep(retryInterval)
		require.Equal(t, 1, tried(), "a change that is not seen is found now and then")

		stop()
		require.NoError(t, <-done)
		work.ShutDown()
	})
}

func TestAQueueWithoutAControllerDropsKeys(t *testing.T) {
	var queue Queue
	require.NotPanics(t, func() { queue.Add(types.NamespacedName{Name: "early"}) })
	require.Zero(t, queue.Len())
}
