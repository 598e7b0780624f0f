package httpserve

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve/unreadtest"
)

// unread requests an endless answer from a server and reads no byte of it beyond its window. It returns once the
// handler has ended.
func unread(t *testing.T, window uint32) {
	t.Helper()
	certificate := NewSelfSigned("broker", nil, nil)
	_, err := certificate.Get(nil) // Its key takes longer than a handshake may.
	require.NoError(t, err)
	ended := make(chan struct{})
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			defer close(ended)
			_, _ = w.Write(make([]byte, 64<<20))
		}),
		ReadHeaderTimeout: time.Second, WriteTimeout: 2 * time.Second,
		TLSConfig: &tls.Config{GetCertificate: certificate.Get, MinVersion: tls.VersionTLS12},
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Run(ctx, srv, ln) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
	})

	conn, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	client, err := unreadtest.New(conn, window)
	require.NoError(t, err)
	require.NoError(t, client.Get("/"))
	select {
	case <-ended:
	case <-time.After(3 * writeByteTimeout):
		t.Fatal("the handler still writes")
	}
}

// A client that keeps its connection open and reads nothing from it is disconnected, and the handlers that write to it
// end. The deadline of an HTTP/2 stream ends it by a frame, which waits behind the unread data.
func TestAnHTTP2ConnectionThatNobodyReadsEnds(t *testing.T) { unread(t, 1<<31-1) }

// A client that reads its connection, but grants no window for an answer, keeps the handler until the deadline.
func TestAnAnswerThatNobodyReadsEnds(t *testing.T) { unread(t, 0) }
