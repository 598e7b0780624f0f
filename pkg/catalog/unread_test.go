package catalog

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A client that keeps its connection and reads nothing of it is left, and so are the handlers that write to it. (The deadline of
// an HTTP/2 stream ends the stream by a frame, which waits behind what the client does not read.)
func TestAnHTTP2ConnectionThatNobodyReadsEnds(t *testing.T) {
	ended := make(chan struct{})
	srv := (&catalog{cfg: Config{Log: (&lines{}).logger()}}).newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		_, _ = w.Write(make([]byte, 64<<20))
	}))
	srv.WriteTimeout = 500 * time.Millisecond
	srv.TLSConfig = &tls.Config{NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	certFile, keyFile := quickCertificate(t)
	go func() { served <- srv.ServeTLS(ln, certFile, keyFile) }()
	t.Cleanup(func() {
		require.NoError(t, srv.Close())
		<-served
	})

	conn, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // Self-signed.
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(conn, conn)
	const most = 1<<31 - 1
	require.NoError(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: most}))
	require.NoError(t, framer.WriteWindowUpdate(0, most-65535))
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", "/"}} {
		require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
	}))
	select {
	case <-ended:
	case <-time.After(streamEnd):
		t.Fatal("the handler still writes")
	}
}

// streamEnd is longer than any deadline of the server.
const streamEnd = 45 * time.Second
