package broker

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capacitorset/liqo-broker-vk/pkg/access"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

// indexAddresses lets the remote IPAM find pods by address; it must run before the caches are filled.
func (b *Broker) indexAddresses(ctx context.Context, mgr manager.Manager) error {
	if b.cfg.IPAM == nil {
		return nil
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, podAddressIndex, indexPodAddress); err != nil {
		return fmt.Errorf("index of pods by address: %w", err)
	}
	return nil
}

// serveIPAM serves the remote IPAM until ctx ends, with the certificate of the kubelet API unless there is another.
func (b *Broker) serveIPAM(ctx context.Context, kubelet kubeletapi.ServingCertificate) error {
	cfg := b.cfg.IPAM
	if cfg == nil {
		return nil
	}
	server := ipam.ServerConfig{
		Log: b.log.WithName("ipam"), Address: cfg.Address, Limits: cfg.Limits,
		Directory: addressBook{cache: b.client}, Metrics: b.ipamMetrics,
	}
	if cfg.Insecure {
		return ipam.NewServer(server).Run(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	certificate := kubelet.Get
	if cfg.CertFile != "" {
		files, err := certwatcher.New(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return fmt.Errorf("--ipam-tls-cert-file=%s, --ipam-tls-private-key-file=%s: %w", cfg.CertFile, cfg.KeyFile, err)
		}
		group.Go(func() error { return files.Start(ctx) })
		certificate = files.GetCertificate
	}
	callers, err := access.NewClientCA(b.cfg.Kubelet.ClientCAFile, b.node.kube)
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
