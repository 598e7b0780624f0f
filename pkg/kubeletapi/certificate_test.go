package kubeletapi

import (
	"crypto/x509"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The names of other servers that use the certificate are valid too.
func TestTheServingCertificateIsValidForItsNames(t *testing.T) {
	cfg := Config{NodeName: "pool", NodeIP: "10.0.0.1", CertificateType: CertificateSelfSigned, DNSNames: []string{"liqo-network-manager"}}
	certificate, err := NewServingCertificate(cfg)
	require.NoError(t, err)
	signed, err := certificate.Get(nil)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(signed.Certificate[0])
	require.NoError(t, err)
	assert.NoError(t, leaf.VerifyHostname("liqo-network-manager"))
	assert.NoError(t, leaf.VerifyHostname("10.0.0.1"))
	assert.Error(t, leaf.VerifyHostname("another"))

	cfg.NodeIP = "here"
	_, err = NewServingCertificate(cfg)
	require.ErrorContains(t, err, `"here"`)
}
