package lease

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

var name = types.NamespacedName{Namespace: "liqo-broker", Name: "liqo-broker"}

func record(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15}
}

// answering counts the requests that are sent.
type answering struct{ sent *int }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	*a.sent++
	return httptest.NewRecorder().Result(), nil
}

// closing is a body that must be closed.
type closing struct {
	*strings.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestALeaderWhoseLeaseHasLapsedWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := kubefake.NewClientset().CoordinationV1()
		l, other := newLease(leases, name, "this", clock.RealClock{}), newLease(leases, name, "other", clock.RealClock{})
		sent := 0
		client := l.Wrap(answering{&sent})
		send := func(method string) error {
			body := &closing{Reader: strings.NewReader("{}")}
			request, err := http.NewRequestWithContext(t.Context(), method, "http://home/api/v1/namespaces/ns/pods/pod", body)
			require.NoError(t, err)
			response, err := client.RoundTrip(request)
			if err == nil {
				return response.Body.Close()
			}
			require.True(t, body.closed)
			return err
		}
		require.NoError(t, send(http.MethodPost), "a standby renews its certificate")
		require.NoError(t, l.Create(t.Context(), record("this")))
		for range 3 {
			time.Sleep(14 * time.Second)
			require.NoError(t, l.Update(t.Context(), record("this")))
		}
		time.Sleep(14 * time.Second)
		require.NoError(t, send(http.MethodPatch))
		require.Equal(t, 2, sent)

		time.Sleep(time.Second)
		for _, method := range []string{http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodDelete} {
			require.ErrorIs(t, send(method), ErrLapsed)
		}
		require.Equal(t, 2, sent)
		require.NoError(t, send(http.MethodGet))

		_, _, err := other.Get(t.Context())
		require.NoError(t, err)
		require.NoError(t, other.Update(t.Context(), record("other")))
		_, _, err = l.Get(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, l.Update(t.Context(), record("")), ErrLapsed, "the elector would release it as it ends")
		require.ErrorIs(t, l.Update(t.Context(), record("this")), ErrLapsed)
		require.ErrorIs(t, l.Run(t.Context()), ErrLapsed)
		now, _, err := other.Get(t.Context())
		require.NoError(t, err)
		require.Equal(t, "other", now.HolderIdentity)
		require.NoError(t, other.Check())
	})
}

// A process that was stopped while it renewed has a lease that began when it sent the renewal.
func TestALeaseLastsFromWhenItsRenewalBegan(t *testing.T) {
	stopped := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)) // Without a monotonic clock, as after a suspension.
	l := newLease(kubefake.NewClientset().CoordinationV1(), name, "this", stopped)
	renewal := record("this")
	require.NoError(t, l.write(&renewal, func() error {
		stopped.Step(15 * time.Second)
		return nil
	}))
	require.ErrorIs(t, l.Check(), ErrLapsed)
	stopped.Step(-time.Minute)
	require.ErrorIs(t, l.Check(), ErrLapsed, "whatever the clock shows later")
}

func TestAReleasedLeaseDoesNotLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(kubefake.NewClientset().CoordinationV1(), name, "this", clock.RealClock{})
		require.NoError(t, l.Create(t.Context(), record("this")))
		require.NoError(t, l.Update(t.Context(), record("")))
		time.Sleep(time.Hour)
		require.NoError(t, l.Check())
	})
}

func TestTheElectorHoldsRenewsAndReleasesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(kubefake.NewClientset().CoordinationV1(), name, "this", clock.RealClock{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: l, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			elector.Run(ctx)
		}()
		time.Sleep(time.Minute)
		require.True(t, elector.IsLeader())
		require.NoError(t, l.Check())
		cancel()
		<-done
		now, _, err := l.Get(t.Context())
		require.NoError(t, err)
		require.Empty(t, now.HolderIdentity)
		require.NoError(t, l.Check())
	})
}
