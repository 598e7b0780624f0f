package catalog

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var secretName = types.NamespacedName{Namespace: "liqo-broker", Name: "liqo-broker-catalog"}

// secrets is an API server that has the Secret. Its client checks the resource version of a write.
type secrets struct {
	client.Client
	written atomic.Int32
	// before is called before a write, and failure fails every call.
	before  func()
	failure error
}

func newSecrets(data map[string][]byte) *secrets {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretName.Namespace, Name: secretName.Name}, Data: data}
	return &secrets{Client: fake.NewClientBuilder().WithObjects(secret).Build()}
}

func (s *secrets) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if s.failure != nil {
		return s.failure
	}
	return s.Client.Get(ctx, key, into, opts...)
}

func (s *secrets) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	err := s.Client.Update(ctx, object, opts...)
	if err == nil {
		s.written.Add(1)
	}
	return err
}

// replica is a replica of the catalog.
func replica(api *secrets) (*shared, *lines) {
	log := &lines{}
	return &shared{
		log: log.logger(), client: api, secret: secretName, host: "liqo-broker-catalog.liqo-broker.svc",
		names: []string{"liqo-broker-catalog", "localhost"},
	}, log
}

func served(t *testing.T, s *shared) *tls.Certificate {
	t.Helper()
	certificate, err := s.get(nil)
	require.NoError(t, err)
	return certificate
}

func TestReplicasShareTheirCertificate(t *testing.T) {
	api := newSecrets(nil)
	first, _ := replica(api)
	second, _ := replica(api)
	_, err := first.get(nil)
	require.ErrorContains(t, err, "has not been read yet")
	// Both find the Secret empty, and the second is faster.
	api.before = func() { require.NoError(t, second.sync(t.Context())) }
	require.True(t, kerrors.IsConflict(first.sync(t.Context())))
	require.NoError(t, first.sync(t.Context()))
	require.Equal(t, served(t, second).Certificate, served(t, first).Certificate)
	require.EqualValues(t, 1, api.written.Load())
	for _, name := range []string{"liqo-broker-catalog.liqo-broker.svc", "liqo-broker-catalog", "localhost", "127.0.0.1", "::1"} {
		require.NoError(t, served(t, first).Leaf.VerifyHostname(name))
	}

	restarted, _ := replica(api)
	require.NoError(t, restarted.sync(t.Context()))
	require.Equal(t, served(t, first).Certificate, served(t, restarted).Certificate)
	require.EqualValues(t, 1, api.written.Load())
}

func TestTheSharedCertificateIsRenewedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newSecrets(nil)
		first, _ := replica(api)
		second, _ := replica(api)
		require.NoError(t, first.sync(t.Context()))
		require.NoError(t, second.sync(t.Context()))
		old := served(t, first)
		life := old.Leaf.NotAfter.Sub(old.Leaf.NotBefore)
		time.Sleep(time.Until(old.Leaf.NotAfter.Add(-life/3 - 3*secretEvery)))

		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, s := range []*shared{first, second} {
			running.Go(func() { assert.NoError(t, s.run(ctx)) })
		}
		defer running.Wait()
		defer stop()
		time.Sleep(2*secretEvery + time.Second)
		require.EqualValues(t, 1, api.written.Load(), "more than a third is left")
		require.Equal(t, old.Certificate, served(t, first).Certificate)
		require.Equal(t, old.Certificate, served(t, second).Certificate)

		time.Sleep(3 * secretEvery)
		require.EqualValues(t, 2, api.written.Load())
		require.NotEqual(t, old.Certificate, served(t, first).Certificate)
		require.Equal(t, served(t, first).Certificate, served(t, second).Certificate)
	})
}

func TestACertificateIsServedWhileItsSecretCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newSecrets(nil)
		s, log := replica(api)
		require.NoError(t, s.sync(t.Context()))
		old := served(t, s)
		api.failure = kerrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "x")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		require.NoError(t, s.run(ctx))
		require.Equal(t, old.Certificate, served(t, s).Certificate)
		require.Contains(t, log.String(), "Failed to sync the serving certificate with its Secret")
	})
}

func TestAnInvalidSecretIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := func() map[string][]byte {
			api := newSecrets(nil)
			s, _ := replica(api)
			require.NoError(t, s.sync(t.Context()))
			var secret corev1.Secret
			require.NoError(t, api.Client.Get(t.Context(), secretName, &secret))
			return secret.Data
		}
		one, another := made(), made()
		time.Sleep(365 * 24 * time.Hour)
		fresh := made()
		for name, data := range map[string]map[string][]byte{
			"no PEM":             {"tls.crt": []byte("x"), "tls.key": []byte("y")},
			"no key":             {"tls.crt": fresh["tls.crt"]},
			"the key of another": {"tls.crt": fresh["tls.crt"], "tls.key": another["tls.key"]},
			"one that has ended": one,
		} {
			api := newSecrets(data)
			s, log := replica(api)
			require.NoError(t, s.sync(t.Context()), name)
			require.True(t, time.Now().Before(served(t, s).Leaf.NotAfter), name)
			require.EqualValues(t, 1, api.written.Load(), name)
			require.Contains(t, log.String(), "Secret has no valid serving certificate, replacing it", name)
			require.Contains(t, log.String(), "liqo-broker/liqo-broker-catalog", name)
		}
	})
}

func TestWithoutItsSecretTheCatalogDoesNotStart(t *testing.T) {
	api := newSecrets(nil)
	resource := schema.GroupResource{Resource: "secrets"}
	for _, failure := range []error{kerrors.NewNotFound(resource, "x"), kerrors.NewForbidden(resource, "x", nil)} {
		api.failure = failure
		s, _ := replica(api)
		require.ErrorContains(t, s.run(t.Context()), "--tls-secret: reading the Secret liqo-broker/liqo-broker-catalog")
	}
}
