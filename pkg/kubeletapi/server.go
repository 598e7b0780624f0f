package kubeletapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

// Config is the configuration of a kubelet API.
type Config struct {
	Log logr.Logger

	NodeName string
	// NodeIP is the address in the serving certificate.
	NodeIP string
	// Remedy is the command that grants this process the right to review callers. Error messages contain it.
	Remedy string
	Port   uint16

	CertificateType CertificateType
	// CertDir stores the certificates of the types kubelet and aws for the next start of the container.
	CertDir string

	// DNSNames are the names in the serving certificate.
	DNSNames []string
	// Certificate is used instead of a new certificate, unless it is nil. The caller of Run runs it.
	Certificate ServingCertificate

	// ApproveCertificate makes this process approve its own requests for a certificate. Liqo approves only requests
	// from processes in its tenant namespaces.
	ApproveCertificate bool

	// ClientCAFile is the CA of the callers' client certificates. The default is the CA that the API server publishes
	// in the ConfigMap kube-system/extension-apiserver-authentication.
	ClientCAFile      string
	AuthorizationMode AuthorizationMode

	// Local is the cluster of the node: its API server signs the serving certificate and reviews the callers. Nothing
	// else may use this client: callers may exhaust its rate limit.
	Local kubernetes.Interface
	// Handler serves the requests of authorised callers.
	Handler http.Handler
}

// Run serves the API until ctx ends, and then returns nil.
func Run(ctx context.Context, cfg Config) error {
	// All addresses of both IP families. Liqo listens on IPv4 only.
	ln, err := httpserve.Listen(ctx, net.JoinHostPort("", fmt.Sprint(cfg.Port)), "--listen-port")
	if err != nil {
		return fmt.Errorf("kubelet API: %w", err)
	}
	return serve(ctx, cfg, ln)
}

// serve serves the API at ln, and closes it. The gate comes last of what may fail: goroutines run from its creation on.
func serve(ctx context.Context, cfg Config, ln net.Listener) error {
	own := cfg.Certificate == nil
	if own {
		var err error
		if cfg.Certificate, err = NewServingCertificate(cfg); err != nil {
			return fmt.Errorf("kubelet API: %w", errors.Join(err, ln.Close()))
		}
	}
	gate, err := newGate(cfg)
	if err != nil {
		return fmt.Errorf("kubelet API: %w", errors.Join(err, ln.Close()))
	}

	server := &http.Server{ //nolint:gosec // httpserve.Run sets ReadHeaderTimeout.
		Handler:     gate.protect(cfg.Handler),
		ConnContext: gate.callers.ConnContext,
		ErrorLog:    slog.NewLogLogger(logr.ToSlogHandler(cfg.Log.V(1)), slog.LevelInfo),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: cfg.Certificate.Get,
			// The gate verifies the certificate: a caller without one may still have a token.
			ClientAuth: tls.RequestClientCert,
		},
	}
	group, ctx := errgroup.WithContext(ctx)
	if own {
		group.Go(func() error { return cfg.Certificate.Run(ctx) })
	}
	group.Go(func() error { return gate.run(ctx) })
	group.Go(func() error {
		cfg.Log.Info("Serving the kubelet API", "address", ln.Addr().String())
		return httpserve.Run(ctx, server, gate.callers.Listener(ln))
	})
	return group.Wait()
}
