package catalog

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

type serving struct {
	get func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// run follows it until ctx ends.
	run func(ctx context.Context) error
}

// newServing returns the certificate in the files, reloaded when they change, the certificate in the Secret, or a
// self-signed one.
func (c *catalog) newServing() (*serving, error) {
	cfg := &c.cfg.TLS
	switch {
	case cfg.CertFile != "":
		return fromFiles(cfg)
	case cfg.Secret.Name != "":
		own := &shared{
			log: c.log, client: c.live, secret: cfg.Secret, host: cfg.Names[0], names: append(cfg.Names[1:], "localhost"),
		}
		return &serving{get: own.get, run: own.run}, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	own := httpserve.NewSelfSigned(host, hostAddresses(), []string{"localhost"})
	return &serving{get: own.Get, run: own.Run}, nil
}

func fromFiles(cfg *TLSConfig) (*serving, error) {
	files, err := certwatcher.New(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file=%s, --tls-key-file=%s: %w", cfg.CertFile, cfg.KeyFile, err)
	}
	return &serving{get: files.GetCertificate, run: files.Start}, nil
}

// tlsConfig requests a client certificate of a CA from callers that have one: package caller verifies it. It sends the
// names of the CA, so that browsers do not ask people for a certificate of another CA.
func tlsConfig(get func(*tls.ClientHelloInfo) (*tls.Certificate, error),
	clientCA func() (x509.VerifyOptions, bool),
) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cfg := &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: get,
				ClientAuth: tls.RequestClientCert,
			}
			if verify, ok := clientCA(); ok {
				cfg.ClientCAs = verify.Roots
			}
			return cfg, nil
		},
		GetCertificate: get,
	}
}

func hostAddresses() []net.IP {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return ips
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			ips = append(ips, network.IP)
		}
	}
	return ips
}
