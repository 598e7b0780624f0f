package claim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func of(kube kubernetes.Interface, namespace, node string) *Claim {
	return &Claim{Log: logr.Discard(), Kube: kube, Namespace: namespace, Node: node}
}

// lead runs the leader of an installation until stop is called, which returns how it ended.
func lead(t *testing.T, c *Claim) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func TestASecondInstallationStartsOnlyAfterTheFirstHasEnded(t *testing.T) {
	for name, second := range map[string][2]string{
		"in another namespace":               {"other", "liqo-broker"},
		"with another node":                  {"liqo-broker", "other"},
		"another namespace and another node": {"other", "other"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := fake.NewClientset()
				first, other := of(kube, "liqo-broker", "liqo-broker"), of(kube, second[0], second[1])
				require.NoError(t, first.Acquire(t.Context()))
				stop := lead(t, first)
				time.Sleep(10 * time.Minute)
				err := other.Acquire(t.Context())
				require.ErrorIs(t, err, ErrClaimed)
				require.ErrorContains(t, err, "the other is liqo-broker/liqo-broker, of this one "+other.identity())
				require.NoError(t, stop(), "the first is not harmed")
				require.NoError(t, first.Acquire(t.Context()), "its next leader")

				began := time.Now()
				for err := other.Acquire(t.Context()); err != nil; err = other.Acquire(t.Context()) {
					require.ErrorIs(t, err, ErrClaimed)
					time.Sleep(10 * time.Second) // Kubernetes restarts it.
				}
				require.Greater(t, time.Since(began), duration)
				require.Less(t, time.Since(began), 2*time.Minute)
				require.ErrorIs(t, first.Run(t.Context()), ErrClaimed, "it stood still for so long")
			})
		})
	}
}

func TestReplicasOfAnInstallationShareTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		began := time.Now()
		for range 3 {
			require.NoError(t, of(kube, "liqo-broker", "liqo-broker").Acquire(t.Context()))
		}
		require.Zero(t, time.Since(began))
	})
}

// The clock of the first machine is an hour behind.
func TestAClaimIsRenewedByAnyClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		first, other := of(kube, "liqo-broker", "liqo-broker"), of(kube, "other", "other")
		require.NoError(t, first.Acquire(t.Context()))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ; ctx.Err() == nil; time.Sleep(interval) {
				lease, err := first.leases().Get(t.Context(), leaseName, metav1.GetOptions{})
				require.NoError(t, err)
				lease = first.renewed(lease)
				lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(-time.Hour)
				_, err = first.leases().Update(t.Context(), lease, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
		}()
		time.Sleep(time.Minute)
		require.ErrorIs(t, other.Acquire(t.Context()), ErrClaimed)
		stop()
		<-ended
	})
}

func TestABrokerWithOlderManifestsStarts(t *testing.T) {
	kube := fake.NewClientset()
	kube.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, kerrors.NewForbidden(schema.GroupResource{Resource: "leases"}, leaseName, errors.New("no rule"))
	})
	require.NoError(t, of(kube, "liqo-broker", "liqo-broker").Acquire(t.Context()))
}
