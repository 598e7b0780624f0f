package untrusted

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestARejectionIsNoSilence(t *testing.T) {
	status := func(code int) error {
		return fmt.Errorf("list: %w",
			kerrors.NewGenericServerResponse(code, "get", schema.GroupResource{}, "", "remote error: tls: bad certificate", 0, true))
	}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                     {nil, false},
		"401":                         {status(401), true},
		"403":                         {status(403), true},
		"429":                         {status(429), true},
		"404":                         {status(404), false},
		"500, whatever its text":      {status(500), false},
		"503":                         {status(503), false},
		"no route":                    {&url.Error{Op: "Get", Err: errors.New("dial tcp: connect: no route to host")}, false},
		"a handshake without an end":  {errors.New("net/http: TLS handshake timeout"), false},
		"a router without a backend":  {errors.New("remote error: tls: unrecognized name"), false},
		"an expired certificate here": {errors.New("readLoopPeekFailLocked: remote error: tls: expired certificate"), true},
	} {
		require.Equal(t, tc.want, Rejected(tc.err), name)
	}
}

func TestAHandshakeThatFailsByACertificateIsARejection(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	server.StartTLS()
	defer server.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	for name, config := range map[string]*tls.Config{
		"the CA of the server is not trusted": {RootCAs: x509.NewCertPool()},
		"the certificate is for another name": {RootCAs: trusted, ServerName: "other.example"},
		"the server demands a certificate":    {RootCAs: trusted},
		"the server trusts no such certificate": {
			RootCAs:              trusted,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &server.TLS.Certificates[0], nil },
		},
	} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		_, err := client.Get(server.URL)
		require.Error(t, err, name)
		require.True(t, Rejected(err), "%s: %v", name, err)
		client.CloseIdleConnections()
	}
}
