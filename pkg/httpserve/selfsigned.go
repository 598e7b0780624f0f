package httpserve

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

const (
	// selfSignedLifetime is the lifetime of client-go's certificates: 365 days, starting an hour ago.
	selfSignedLifetime = 365*24*time.Hour - time.Hour
	// selfSignedMargin is how long before its end a certificate is renewed.
	selfSignedMargin = 24 * time.Hour
)

// SelfSigned is a certificate that no CA of the cluster signs. It is made on first use, and renewed in time.
type SelfSigned struct {
	host  string
	ips   []net.IP
	names []string

	mu      sync.Mutex
	current *tls.Certificate // Guarded by mu.
	expires time.Time        // Guarded by mu.
}

// NewSelfSigned returns a certificate for a host and its other addresses and names.
func NewSelfSigned(host string, ips []net.IP, names []string) *SelfSigned {
	return &SelfSigned{host: host, ips: ips, names: names}
}

// Run returns nil when ctx ends: Get renews the certificate.
func (s *SelfSigned) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Get is tls.Config's GetCertificate.
func (s *SelfSigned) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.current != nil && now.Add(selfSignedMargin).Before(s.expires) {
		return s.current, nil
	}
	signed, key, err := GenerateSelfSigned(s.host, s.ips, s.names)
	if err != nil {
		return nil, err
	}
	fresh, err := tls.X509KeyPair(signed, key)
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	s.current, s.expires = &fresh, now.Add(selfSignedLifetime)
	return s.current, nil
}

// GenerateSelfSigned returns a certificate for a host and its other addresses and names, and its key, in PEM. It is
// valid for a year. client-go v0.28, which the virtual kubelet of Liqo v0.x is built with, has no other lifetime.
func GenerateSelfSigned(host string, ips []net.IP, names []string) (signed, key []byte, err error) {
	signed, key, err = cert.GenerateSelfSignedCertKey(host, ips, names)
	if err != nil {
		return nil, nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	return signed, key, nil
}
