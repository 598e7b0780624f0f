package election

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func configOf(pod string) *Config {
	return &Config{
		Log: logr.Discard(), Identity: pod, Namespace: "liqo-tenant-p1", Serving: func() bool { return true },
		Answered: func() time.Time { return time.Time{} },
		Times:    Times{Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second},
	}
}

func holder(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("liqo-tenant-p1").Get(t.Context(), "vnode", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, lease.Spec.HolderIdentity)
	return *lease.Spec.HolderIdentity
}

func TestTheLeaseIsHeldAsLongAsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		events := record.NewBroadcaster()
		defer events.Shutdown()
		ctx, stop := context.WithCancel(t.Context())

		winding := make(chan struct{})
		first := make(chan error, 1)
		go func() {
			first <- configOf("a").Run(ctx, "vnode", client, events, func(ctx context.Context) error {
				<-ctx.Done()
				<-winding
				return nil
			})
		}()
		time.Sleep(time.Minute)
		require.Equal(t, "a", holder(t, client))

		var secondWorked atomic.Bool
		standby, stopStandby := context.WithCancel(t.Context())
		second := make(chan error, 1)
		go func() {
			second <- configOf("b").Run(standby, "vnode", client, events, func(ctx context.Context) error {
				secondWorked.Store(true)
				<-ctx.Done()
				return nil
			})
		}()
		stop()
		time.Sleep(time.Minute)
		require.Equal(t, "a", holder(t, client), "still winding down")
		require.False(t, secondWorked.Load())

		close(winding)
		require.NoError(t, <-first)
		time.Sleep(12 * time.Second) // The retry period and its jitter, but less than the lease duration.
		require.Equal(t, "b", holder(t, client), "given back, not waited for")
		require.True(t, secondWorked.Load())
		stopStandby()
		require.NoError(t, <-second)
		require.Empty(t, holder(t, client))
	})
}

func TestALostLeaseIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var broken atomic.Bool
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if broken.Load() {
				return true, &coordinationv1.Lease{}, kerrors.NewInternalError(errors.New("etcd is gone"))
			}
			return false, nil, nil
		})
		events := record.NewBroadcaster()
		defer events.Shutdown()

		ended := make(chan error, 1)
		go func() {
			ended <- configOf("a").Run(t.Context(), "vnode", client, events, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Minute)
		broken.Store(true)
		require.EqualError(t, <-ended, "lost the lease liqo-tenant-p1/vnode")
	})
}

func TestAStandbyThatIsStoppedIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &coordinationv1.Lease{}, kerrors.NewInternalError(errors.New("no API server"))
		})
		events := record.NewBroadcaster()
		defer events.Shutdown()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, configOf("a").Run(ctx, "vnode", client, events, func(context.Context) error {
			return errors.New("never elected")
		}))
	})
}

func TestTheErrorOfTheWorkComesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		events := record.NewBroadcaster()
		defer events.Shutdown()
		failure := errors.New("failure")
		require.Equal(t, failure, configOf("a").Run(t.Context(), "vnode", client, events,
			func(context.Context) error { return failure }))
		require.Empty(t, holder(t, client))
	})
}

func TestTheLeaseSaysThatItsHolderConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		events := record.NewBroadcaster()
		defer events.Shutdown()
		ctx, stop := context.WithCancel(t.Context())
		annotation := func(key string) string {
			lease, err := client.CoordinationV1().Leases("liqo-tenant-p1").Get(t.Context(), "vnode", metav1.GetOptions{})
			require.NoError(t, err)
			return lease.Annotations[key]
		}
		connecting := func() string { return annotation(v1alpha1.ConnectingAnnotation) }
		var serving atomic.Bool
		var answered atomic.Pointer[time.Time]
		answered.Store(&time.Time{})
		c := configOf("a")
		c.Serving, c.Answered = serving.Load, func() time.Time { return *answered.Load() }
		ended := make(chan error, 1)
		go func() {
			ended <- c.Run(ctx, "vnode", client, events, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Minute)
		require.Equal(t, "a", connecting())
		require.Empty(t, annotation(v1alpha1.AnsweredAgoAnnotation))
		serving.Store(true)
		now := time.Now()
		answered.Store(&now)
		time.Sleep(c.RetryPeriod + time.Second)
		require.Empty(t, connecting())
		ago, err := time.ParseDuration(strings.TrimPrefix(annotation(v1alpha1.AnsweredAgoAnnotation), "a "))
		require.NoError(t, err)
		require.LessOrEqual(t, ago, c.RetryPeriod)
		time.Sleep(time.Minute)
		later, err := time.ParseDuration(strings.TrimPrefix(annotation(v1alpha1.AnsweredAgoAnnotation), "a "))
		require.NoError(t, err)
		require.InDelta(t, time.Minute, later-ago, float64(c.RetryPeriod))
		stop()
		require.NoError(t, <-ended)
	})
}
