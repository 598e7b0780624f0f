package catalog

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

const (
	selfSignedLifetime = 90 * 24 * time.Hour
	// selfSignedMargin is how long before its end a certificate is made anew.
	selfSignedMargin = 24 * time.Hour
)

// serving is the certificate of the catalog.
type serving struct {
	get func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// run follows it until ctx ends.
	run func(ctx context.Context) error
}

// newServing is the certificate in the files, followed when they change, or one that nobody vouches for.
func newServing(cfg *TLSConfig) (*serving, error) {
	if cfg.CertFile == "" {
		own := &selfSigned{now: time.Now}
		return &serving{get: own.get, run: func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}}, nil
	}
	files, err := certwatcher.New(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file=%s, --tls-key-file=%s: %w", cfg.CertFile, cfg.KeyFile, err)
	}
	return &serving{get: files.GetCertificate, run: files.Start}, nil
}

// tlsConfig asks callers for a client certificate of a CA, if they have one: package caller verifies it. The names of the
// CA keep browsers from asking people for a certificate that is none of it.
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

// selfSigned is a certificate that nobody vouches for, made when it is needed, and anew before it ends.
type selfSigned struct {
	now func() time.Time

	mu      sync.Mutex
	current *tls.Certificate // Guarded by mu.
	expires time.Time        // Guarded by mu.
}

func (s *selfSigned) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.current != nil && now.Add(selfSignedMargin).Before(s.expires) {
		return s.current, nil
	}
	expires := now.Add(selfSignedLifetime)
	fresh, err := selfSign(now, expires)
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	s.current, s.expires = fresh, expires
	return fresh, nil
}

// selfSign makes a certificate for this host, with a key that browsers know: no Ed25519.
func selfSign(from, until time.Time) (*tls.Certificate, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		Subject:      pkix.Name{CommonName: "liqo-broker-vk catalog"},
		DNSNames:     []string{"localhost", host},
		IPAddresses:  hostAddresses(),
		SerialNumber: serial,
		NotBefore:    from.Add(-time.Minute),
		NotAfter:     until,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
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
