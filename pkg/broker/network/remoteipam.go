package network

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
)

// IPAMConfig is the configuration of the remote IPAM.
type IPAMConfig struct {
	// Address is HOST:PORT or :PORT.
	Address string
	// CertFile and KeyFile are the serving certificate, reloaded when they change; "" uses the kubelet API's
	// certificate.
	CertFile, KeyFile string
	// Insecure serves plaintext and does not authenticate callers, as Liqo v0.x does.
	Insecure bool
	Limits   ipam.Limits
}

// RemoteIPAM serves the remote IPAM.
type RemoteIPAM struct {
	Config IPAMConfig
	Log    logr.Logger
	// Reader is the cache, with the index of IndexPodAddresses.
	Reader client.Reader
	// Kube reads the client CA, unless ClientCAFile is set.
	Kube         kubernetes.Interface
	ClientCAFile string
	// Certificate is the serving certificate of the kubelet API.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Metrics     *ipam.Metrics
}

// IndexPodAddresses lets the remote IPAM find pods by address; it must be called before the caches start.
func IndexPodAddresses(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.Pod{}, podAddressIndex, indexPodAddress); err != nil {
		return fmt.Errorf("index of pods by address: %w", err)
	}
	return nil
}

// Run serves until ctx ends.
func (r *RemoteIPAM) Run(ctx context.Context) error {
	server := ipam.ServerConfig{
		Log: r.Log, Address: r.Config.Address, Limits: r.Config.Limits,
		Directory: addressBook{cache: r.Reader}, Metrics: r.Metrics,
	}
	if r.Config.Insecure {
		return ipam.NewServer(server).Run(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	certificate := r.Certificate
	if r.Config.CertFile != "" {
		files, err := certwatcher.New(r.Config.CertFile, r.Config.KeyFile)
		if err != nil {
			return fmt.Errorf("--ipam-tls-cert-file=%s, --ipam-tls-private-key-file=%s: %w", r.Config.CertFile, r.Config.KeyFile, err)
		}
		group.Go(func() error { return files.Start(ctx) })
		certificate = files.GetCertificate
	}
	callers, err := auth.NewClientCA(r.ClientCAFile, r.Kube)
	if err != nil {
		return fmt.Errorf("remote IPAM: %w", err)
	}
	group.Go(func() error {
		callers.Run(ctx, 1)
		return nil
	})
	server.TLS = ipam.ServerTLS(certificate, callers.VerifyOptions)
	group.Go(func() error { return ipam.NewServer(server).Run(ctx) })
	return group.Wait()
}
