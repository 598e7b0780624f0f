package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// A certificate to which a peer has added organisations would have the groups of others if it were accepted.
func TestACertificateHasOneOrganization(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	sign := func(template, parent *x509.Certificate) *x509.Certificate {
		template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
		require.NoError(t, err)
		signed, err := x509.ParseCertificate(der)
		require.NoError(t, err)
		return signed
	}
	ca := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca = sign(ca, ca)
	content, err := dynamiccertificates.NewStaticCAContent("ca", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}))
	require.NoError(t, err)
	authenticate := func(organizations ...string) (bool, error) {
		leaf := sign(&x509.Certificate{
			Subject:     pkix.Name{CommonName: "slice", Organization: organizations},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, ca)
		_, ok, err := NewCertificateAuthenticator(content).AuthenticateRequest(&http.Request{
			TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}},
		})
		return ok, err
	}
	for _, organizations := range [][]string{nil, {"consumer1"}} {
		ok, err := authenticate(organizations...)
		require.NoError(t, err)
		require.True(t, ok)
	}
	ok, err := authenticate("consumer1", "consumer2", "kubeadm:cluster-admins")
	require.False(t, ok)
	require.ErrorContains(t, err, "3 organizations")
}
