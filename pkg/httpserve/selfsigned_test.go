package httpserve

import (
	"crypto/x509"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASelfSignedCertificateIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSelfSigned("broker", []net.IP{net.IPv4(192, 0, 2, 1)}, []string{"localhost"})
		first, err := s.Get(nil)
		require.NoError(t, err)
		leaf, err := x509.ParseCertificate(first.Certificate[0])
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(selfSignedLifetime), leaf.NotAfter, time.Minute)
		for _, name := range []string{"broker", "localhost", "192.0.2.1"} {
			require.NoError(t, leaf.VerifyHostname(name))
		}
		time.Sleep(selfSignedLifetime - selfSignedMargin - time.Second)
		again, err := s.Get(nil)
		require.NoError(t, err)
		require.Same(t, first, again)
		time.Sleep(time.Second)
		again, err = s.Get(nil)
		require.NoError(t, err)
		require.NotSame(t, first, again)
	})
}
