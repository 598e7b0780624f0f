package httpserve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
)

func TestOnePortHasBothSchemes(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	certificate := NewSelfSigned("broker", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	ln, err := Listen(t.Context(), "127.0.0.1:0", "--address")
	require.NoError(t, err)
	split := Split(Limit(ln, 10, 10, nil), time.Second)
	answer := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, text+" "+r.Proto) })
	}
	ctx, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return split.Run(ctx) })
	group.Go(func() error {
		secure := &http.Server{
			Handler:   answer("secure"),
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.Get},
		}
		return Run(ctx, secure, split.Secure())
	})
	group.Go(func() error { return Run(ctx, &http.Server{Handler: answer("plain")}, split.Plain()) })

	silent, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer silent.Close()
	served, err := certificate.Get(nil)
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	for _, der := range served.Certificate {
		signer, err := x509.ParseCertificate(der)
		require.NoError(t, err)
		trusted.AddCert(signer)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for scheme, want := range map[string]string{"https": "secure HTTP/2.0", "http": "plain HTTP/1.1"} {
		for range 3 {
			response, err := client.Get(scheme + "://" + ln.Addr().String())
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, want, string(body))
		}
	}
	// A connection that sends nothing is closed, and does not delay the answers to others.
	require.NoError(t, silent.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = silent.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	// A connection that has sent nothing when the server ends is closed, too.
	late, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer late.Close()
	transport.CloseIdleConnections()
	stop()
	require.NoError(t, group.Wait())
	_, err = net.Dial("tcp", ln.Addr().String())
	require.Error(t, err)
}

// slowToClose is a listener that takes a while to close: its Accept ends before.
type slowToClose struct {
	net.Listener

	begun, done chan struct{}
}

func (c *slowToClose) Accept() (net.Conn, error) {
	<-c.begun
	return nil, net.ErrClosed
}

func (c *slowToClose) Close() error {
	close(c.begun)
	<-c.done
	return nil
}

func (*slowToClose) Addr() net.Addr { return &net.TCPAddr{} }

// Another process, or the next one, may listen at the address when Run has returned.
func TestRunReturnsWhenTheListenerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &slowToClose{begun: make(chan struct{}), done: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		returned := make(chan error, 1)
		go func() { returned <- Split(ln, time.Second).Run(ctx) }()
		stop()
		synctest.Wait()
		require.Empty(t, returned, "it still closes")
		close(ln.done)
		require.NoError(t, <-returned)
	})
}
