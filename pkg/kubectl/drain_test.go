package kubectl

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// begin runs a command; end cancels its context, as Ctrl-C does, and returns its error.
func begin(t *testing.T, do func(context.Context) error) (end func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	synctest.Wait()
	return func() error {
		cancel()
		return <-done
	}
}

func drainBegins(t *testing.T, s *Session, timeout time.Duration, providers ...string) (end func() error) {
	return begin(t, func(ctx context.Context) error {
		return s.Drain(ctx, providers, DrainOptions{Wait: true, Timeout: timeout})
	})
}

// poll lets the time between two reads pass.
func poll() {
	time.Sleep(drainPollInterval)
	synctest.Wait()
}

// setDrained writes the condition as the broker does.
func (s *Session) setDrained(t *testing.T, id string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	s.changeProvider(t, id, func(pc *v1alpha1.ProviderCluster) {
		meta.SetStatusCondition(&pc.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ProviderDrained, Status: status, Reason: reason, Message: message, ObservedGeneration: pc.Generation,
		})
	})
}

func (s *Session) changeProvider(t *testing.T, id string, how func(*v1alpha1.ProviderCluster)) {
	t.Helper()
	var pc v1alpha1.ProviderCluster
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Name: id}, &pc))
	how(&pc)
	s.write(t, &pc)
}

func TestDrainShowsTheConditionUntilItIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, screen := at(t, interceptor.Funcs{}, provider("p1"), provider("p2"), provider("p3"))
		end := drainBegins(t, s, 0, "p1", "p2")
		require.Equal(t, []string{
			"providercluster.brokering.liqo.io/p1 draining", "providercluster.brokering.liqo.io/p2 draining",
		}, screen.lines())

		s.setDrained(t, "p1", metav1.ConditionFalse, "PodsLeft", "2 pods are left")
		s.setDrained(t, "p2", metav1.ConditionTrue, "Empty", "")
		poll()
		require.Equal(t, []string{"p1: 2 pods are left", "providercluster.brokering.liqo.io/p2 drained"}, screen.lines())

		s.setDrained(t, "p1", metav1.ConditionFalse, "PodsLeft", "1 pod is left")
		poll()
		poll()
		require.Equal(t, []string{"p1: 1 pod is left"}, screen.lines())

		s.setDrained(t, "p1", metav1.ConditionTrue, "Empty", "")
		poll()
		require.Equal(t, []string{"providercluster.brokering.liqo.io/p1 drained"}, screen.lines())
		require.NoError(t, end())
	})
}

// The condition of an earlier drain is no answer.
func TestDrainWaitsForTheBrokerToObserveTheSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The fake API does not count generations.
		p1 := provider("p1")
		p1.Generation = 2
		p1.Status.Conditions = append(p1.Status.Conditions,
			metav1.Condition{Type: v1alpha1.ProviderDrained, Status: metav1.ConditionTrue, Reason: "Empty", ObservedGeneration: 1})
		s, screen := at(t, interceptor.Funcs{}, p1)
		end := drainBegins(t, s, 0, "p1")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"providercluster.brokering.liqo.io/p1 draining"}, screen.lines())

		s.setDrained(t, "p1", metav1.ConditionTrue, "Empty", "")
		poll()
		require.Equal(t, []string{"providercluster.brokering.liqo.io/p1 drained"}, screen.lines())
		require.NoError(t, end())
	})
}

func TestDrainThatDoesNotEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout   time.Duration
		providers []string
		meanwhile func(*testing.T, *Session)
		errorText []string
	}{
		"takes too long": {5 * time.Minute, []string{"p1", "p2"}, nil, []string{
			"error: timed out after 5m0s (--timeout): p1: 7 pods are left, p2: the broker has not observed the drain yet; " +
				"the drain continues until uncordon",
		}},
		"is interrupted": {0, []string{"p1"}, nil, []string{
			"error: interrupted: p1: 7 pods are left; the drain continues until uncordon",
		}},
		"is ended by another change": {0, []string{"p1"}, func(t *testing.T, s *Session) {
			require.NoError(t, s.Uncordon(t.Context(), []string{"p1"}))
		}, []string{"error: p1: the drain was ended by another change"}},
		"has lost its provider": {0, []string{"p1"}, func(t *testing.T, s *Session) {
			require.NoError(t, s.Client.Delete(t.Context(), provider("p1")))
		}, []string{"error: p1 was deleted during the drain"}},
		"has another provider of that name": {0, []string{"p1"}, func(t *testing.T, s *Session) {
			require.NoError(t, s.Client.Delete(t.Context(), provider("p1")))
			again := provider("p1")
			again.UID, again.Spec.Drain = "another", true
			require.NoError(t, s.Client.Create(t.Context(), again))
		}, []string{"error: p1 was deleted during the drain"}},
		"has no provider": {0, []string{"p9"}, nil, []string{
			`Error from server (NotFound): providerclusters.brokering.liqo.io "p9" not found`,
		}},
		"fails for one of two": {5 * time.Minute, []string{"p9", "p1"}, nil, []string{
			`Error from server (NotFound): providerclusters.brokering.liqo.io "p9" not found`,
			"error: timed out after 5m0s (--timeout): p1: 7 pods are left; the drain continues until uncordon",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := at(t, interceptor.Funcs{}, provider("p1"), provider("p2"))
				end := drainBegins(t, s, tc.timeout, tc.providers...)
				s.setDrained(t, "p1", metav1.ConditionFalse, "PodsLeft", "7 pods are left")
				poll()
				if tc.meanwhile != nil {
					tc.meanwhile(t, s)
					poll()
				}
				time.Sleep(tc.timeout)
				synctest.Wait()
				require.Equal(t, tc.errorText, Words(end()))
			})
		})
	}
}

func TestDrainRetriesFailedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fault atomic.Pointer[error]
		s, screen := at(t, interceptor.Funcs{
			Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if err := fault.Load(); err != nil {
					return *err
				}
				return under.Get(ctx, key, o, opts...)
			},
		}, provider("p1"))
		end := drainBegins(t, s, 0, "p1")
		screen.lines()

		refused := errors.New("connection refused")
		fault.Store(&refused)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"warning: retrying: error: connection refused"}, screen.lines())

		var forbidden error = kerrors.NewForbidden(schema.GroupResource{Resource: "providerclusters"}, "p1", errors.New("no right to get"))
		fault.Store(&forbidden)
		poll()
		require.True(t, kerrors.IsForbidden(end()))
	})
}

func TestDrainEndsWhenItsOutputBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := at(t, interceptor.Funcs{}, provider("p1"))
		end := drainBegins(t, s, 0, "p1")
		closed := errors.New("the terminal is closed")
		s.Out = writer(func([]byte) (int, error) { return 0, closed })
		s.setDrained(t, "p1", metav1.ConditionFalse, "PodsLeft", "1 pod is left")
		poll()
		require.ErrorIs(t, end(), closed)
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestDrainNeedNotWait(t *testing.T) {
	s, screen := at(t, interceptor.Funcs{}, provider("p1"), placed("a", "p1"))
	require.NoError(t, s.Drain(t.Context(), []string{"p1"}, DrainOptions{}))
	require.NoError(t, s.Drain(t.Context(), []string{"p1"}, DrainOptions{}))
	require.Equal(t, []string{
		"providercluster.brokering.liqo.io/p1 draining", "providercluster.brokering.liqo.io/p1 already draining",
	}, screen.lines())
}
