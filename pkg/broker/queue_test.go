package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestManyWakesAreOne: the pods that wait are tried again soon after something changed, not once for every change, and
// not at all when nothing did.
func TestManyWakesAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Broker{core: newCore(&Config{}), wake: make(chan struct{}, 1)}
		waiting := types.NamespacedName{Namespace: "ns", Name: "waiting"}
		b.core.waiting[waiting] = struct{}{}
		tried := 0
		b.podQueue.add = func(r reconcile.Request) {
			require.Equal(t, waiting, r.NamespacedName)
			tried++
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.wakeUp(ctx) }()

		time.Sleep(retryEvery - time.Second)
		synctest.Wait()
		require.Zero(t, tried, "nothing changed")
		for range 1000 {
			b.wakeWaiting()
		}
		synctest.Wait()
		require.Equal(t, 1, tried)
		b.wakeWaiting()
		synctest.Wait()
		require.Equal(t, 1, tried, "not yet")
		time.Sleep(2 * wakeEvery)
		synctest.Wait()
		require.Equal(t, 2, tried, "but soon")

		time.Sleep(retryEvery)
		synctest.Wait()
		require.Equal(t, 3, tried, "what wakes nobody is found now and then")

		stop()
		require.NoError(t, <-done)
	})
}

func TestAQueueWithoutAControllerTakesNothing(t *testing.T) {
	var q queue
	require.NotPanics(t, func() { q.put(types.NamespacedName{Name: "early"}) })
}
