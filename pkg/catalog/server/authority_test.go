package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
)

// authority is the CA of a cluster.
type authority struct {
	authenticator.Request
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	a.cert, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.pool.AddCert(a.cert)
	a.Request = auth.NewCertificateAuthenticator(caContent{options: a.options})
	return a
}

func (a *authority) options() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: a.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, key
}

// client has a certificate, written as "name/organisation,organisation", with the prefix "!" for an expired one, and
// "?" for one of another CA.
func (a *authority) client(t *testing.T, certificate string) *http.Client {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true}
	if certificate != "" {
		by := a
		template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		if strings.HasPrefix(certificate, "!") {
			template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
		}
		if strings.HasPrefix(certificate, "?") {
			by = newAuthority(t)
		}
		name, organizations, _ := strings.Cut(strings.TrimLeft(certificate, "!?"), "/")
		template.Subject = pkix.Name{CommonName: name, Organization: strings.Split(organizations, ",")}
		cert, key := by.sign(t, template)
		mine := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
		// Whatever CAs the server names.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &mine, nil }
	}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: cfg, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// caContent is the CA in the type that package auth needs.
type caContent struct {
	auth.ClientCA
	options func() (x509.VerifyOptions, bool)
}

func (c caContent) VerifyOptions() (x509.VerifyOptions, bool) { return c.options() }
