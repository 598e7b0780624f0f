package network

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

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
	// Reader is the cache, prepared by PrepareCache.
	Reader client.Reader
	// Kube reads the client CA, unless ClientCAFile is set.
	Kube         kubernetes.Interface
	ClientCAFile string
	// Certificate is the serving certificate of the kubelet API.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Metrics     *ipam.Metrics
}

// PrepareCache indexes pods by address, and starts the informers of everything that the remote IPAM reads. It must be
// called before the caches start. Without it, the first call to a replica that does not lead would start an informer, and
// wait for it, up to its deadline. Kinds that are not installed are left out.
func PrepareCache(ctx context.Context, caches cache.Cache) error {
	if err := caches.IndexField(ctx, &corev1.Pod{}, podAddressIndex, indexPodAddress); err != nil {
		return fmt.Errorf("index of pods by address: %w", err)
	}
	for _, kind := range []client.Object{
		&corev1.Namespace{}, &ipamv1alpha1.IP{}, &ipamv1alpha1.Network{}, &networkingv1beta1.Configuration{},
	} {
		if _, err := caches.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("cache of the remote IPAM: %T: %w", kind, err)
		}
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
