package catalog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

const (
	// secretEvery is how often the Secret is read: a certificate that another replica made is served after that.
	secretEvery = time.Minute
	// secretTimeout bounds reading and writing it once.
	secretTimeout = 10 * time.Second
	// renewAt is the share of its life that is left when a certificate is renewed.
	renewAt = 1. / 3
)

// secretClient reads and writes the Secret.
type secretClient interface {
	Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error
	Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error
}

// shared is a self-signed certificate that all replicas keep in one Secret, which exists. The first replica makes it,
// and one of the replicas renews it when a third of its life is left.
type shared struct {
	log    logr.Logger
	client secretClient
	secret types.NamespacedName
	host   string
	names  []string

	current atomic.Pointer[tls.Certificate]
}

// get is tls.Config's GetCertificate.
func (s *shared) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := s.current.Load(); current != nil {
		return current, nil
	}
	return nil, fmt.Errorf("the certificate in the Secret %s has not been read yet", s.secret)
}

// run follows the Secret until ctx ends. It returns an error if the catalog has no such Secret when it starts.
func (s *shared) run(ctx context.Context) error {
	for {
		err := s.sync(ctx)
		pause := secretEvery
		switch {
		case ctx.Err() != nil:
			return nil
		case s.current.Load() == nil && (kerrors.IsNotFound(err) || kerrors.IsForbidden(err)):
			return fmt.Errorf("--tls-secret: %w (the Secret and the right to get and update it are in deploy/catalog.yaml)", err)
		case kerrors.IsConflict(err): // Another replica wrote it.
			pause = 0
		case err != nil:
			s.log.Error(err, "Failed to sync the serving certificate with its Secret, retrying", "secret", s.secret.String())
			pause = wait.Jitter(secretEvery/12, 1)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// sync serves the certificate in the Secret. If it has no valid one, sync first writes a new one there. An error of
// kind Conflict means that another replica wrote the Secret meanwhile.
func (s *shared) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	var secret corev1.Secret
	if err := s.client.Get(ctx, s.secret, &secret); err != nil {
		return fmt.Errorf("reading the Secret %s: %w", s.secret, err)
	}
	found, left, err := parse(&secret)
	if err != nil {
		s.log.Error(err, "Secret has no valid serving certificate, replacing it", "secret", s.secret.String())
	}
	if found != nil {
		s.current.Store(found)
	}
	if left > renewAt {
		return nil
	}
	signed, key, err := httpserve.GenerateSelfSigned(s.host, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, s.names)
	if err != nil {
		return err
	}
	secret.Data = map[string][]byte{corev1.TLSCertKey: signed, corev1.TLSPrivateKeyKey: key}
	if err := s.client.Update(ctx, &secret); err != nil { // Update checks the version that was read.
		return fmt.Errorf("writing the Secret %s: %w", s.secret, err)
	}
	s.log.Info("Generated a serving certificate", "secret", s.secret.String())
	fresh, _, err := parse(&secret)
	if err != nil {
		return err
	}
	s.current.Store(fresh)
	return nil
}

// parse returns the certificate in a Secret with the share of its life that is left. An empty Secret has none.
func parse(secret *corev1.Secret) (found *tls.Certificate, left float64, err error) {
	signed, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if len(signed) == 0 && len(key) == 0 {
		return nil, 0, nil
	}
	pair, err := tls.X509KeyPair(signed, key)
	if err != nil {
		return nil, 0, err
	}
	now, leaf := time.Now(), pair.Leaf
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return nil, 0, errors.New("the certificate is valid from " + leaf.NotBefore.String() + " to " + leaf.NotAfter.String())
	}
	return &pair, float64(leaf.NotAfter.Sub(now)) / float64(leaf.NotAfter.Sub(leaf.NotBefore)), nil
}
