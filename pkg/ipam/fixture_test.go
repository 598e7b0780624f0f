package ipam

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// directory answers from a table, by consumer and address.
type directory struct {
	mu       sync.Mutex
	external map[string]netip.Addr // Guarded by mu.
	err      error                 // Guarded by mu.
	asked    int                   // Guarded by mu.
	// If hold is not nil, External sends to entered, and waits until hold is closed, or until its deadline.
	hold, entered chan struct{}
}

func (d *directory) set(consumer, address, external string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.external == nil {
		d.external = map[string]netip.Addr{}
	}
	if external == "" {
		delete(d.external, consumer+" "+address)
		return
	}
	d.external[consumer+" "+address] = netip.MustParseAddr(external)
}

func (d *directory) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *directory) calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

func (d *directory) External(ctx context.Context, consumer string, address netip.Addr) (netip.Addr, error) {
	if d.hold != nil {
		d.entered <- struct{}{}
		select {
		case <-d.hold:
		case <-ctx.Done():
			return netip.Addr{}, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if d.err != nil {
		return netip.Addr{}, d.err
	}
	if found, ok := d.external[consumer+" "+address.String()]; ok {
		return found, nil
	}
	return netip.Addr{}, ErrUnknown
}

func (d *directory) Home(_ context.Context, consumer string, address netip.Addr) (netip.Addr, error) {
	if consumer != "consumer1" {
		return netip.Addr{}, ErrNotYet
	}
	return address.Next(), nil
}

func (d *directory) Peered(_ context.Context, consumer string) (bool, error) {
	return strings.HasPrefix(consumer, "consumer"), nil
}

func (d *directory) PodCIDRs(context.Context) ([]netip.Prefix, error) {
	return []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00::/64")}, nil
}

// authority signs certificates, as the CA of the broker's cluster does.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "cluster"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key
}

func (a *authority) serving(name string) *tls.Certificate {
	cert, key := a.sign(&x509.Certificate{DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// identity returns the identity that Liqo's peering gives a consumer: a client certificate with the organisations.
func (a *authority) identity(organizations ...string) *rest.Config {
	cert, key := a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "slice-abcdef", Organization: organizations},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	return &rest.Config{Host: "https://api.example", TLSClientConfig: rest.TLSClientConfig{
		CAData:   a.pem(),
		CertData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}),
		KeyData:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
	}}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// serverTLS serves with the name of the Service and accepts client certificates of the authority.
func (a *authority) serverTLS() *tls.Config {
	certificate := a.serving(ServiceName)
	return ServerTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
		func() (x509.VerifyOptions, bool) {
			roots := x509.NewCertPool()
			roots.AddCert(a.cert)
			return x509.VerifyOptions{Roots: roots}, true
		})
}

// serve runs a server until the test ends, or stop is called, and returns its address.
func serve(t *testing.T, cfg ServerConfig) (address string, stop func()) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return ln.Addr().String(), serveOn(t, ln, cfg)
}

func serveOn(t *testing.T, ln net.Listener, cfg ServerConfig) (stop func()) {
	t.Helper()
	cfg.Log = testr.New(t)
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics()
	}
	if cfg.Limits == (Limits{}) {
		cfg.Limits = Limits{PerSecond: 1000, Burst: 1000, Concurrent: 10, Connections: 64}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(cfg).Serve(ctx, ln) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}
