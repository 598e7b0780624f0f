package image

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority returns an authority. If likeness is not nil, the authority has its name but not its key.
func newAuthority(t *testing.T, likeness *x509.Certificate) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if likeness != nil {
		template.RawSubject, template.SubjectKeyId = likeness.RawSubject, likeness.SubjectKeyId
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{t, cert, key}
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// server starts a server on 127.0.0.1 that answers nothing, with a certificate of the authority.
func (a authority) server() *httptest.Server {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, &key.PublicKey, a.key)
	require.NoError(a.t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	a.t.Cleanup(server.Close)
	return server
}

// amazon returns the root certificate of the servers that EKS identities call.
func amazon(t *testing.T) *x509.Certificate {
	t.Helper()
	for root := range bundle.Roots() {
		cert, err := x509.ParseCertificate(root.Certificate)
		require.NoError(t, err)
		if cert.Subject.CommonName == "Amazon Root CA 1" {
			return cert
		}
	}
	require.FailNow(t, "the bundle has no such root")
	return nil
}

// checkRoots runs the program against a server whose certificate falsely claims to be signed by Amazon. If the program
// has that root, its error names the key that does not match the signature. Without the root, its error is an unknown
// authority.
func checkRoots(t *testing.T, c container, args []string) {
	t.Helper()
	require.NoDirExists(t, filepath.Join(c.root, "etc", "ssl"), "the system has no roots")
	server := newAuthority(t, amazon(t)).server()
	c.put(t, "kubeconfig", []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]
`))
	defer os.Remove(filepath.Join(c.root, "kubeconfig"))
	got := c.run(t, nil, append(args[:len(args):len(args)], "--home-kubeconfig=/kubeconfig"), nil, "")
	require.Equal(t, 1, got.code)
	require.Contains(t, lastLine(got.stderr), `while trying to verify candidate authority certificate "Amazon Root CA 1"`)
}
