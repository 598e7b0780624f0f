package httpserve

import (
	"bytes"
	"context"
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

// A client that keeps its connection and reads nothing of it is disconnected, and the handlers that write to it end. The deadline
// of an HTTP/2 stream ends it by a frame, which waits behind what the client does not read.
func TestAnHTTP2ConnectionThatNobodyReadsEnds(t *testing.T) {
	ended := make(chan struct{})
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			defer close(ended)
			_, _ = w.Write(make([]byte, 64<<20))
		}),
		ReadHeaderTimeout: time.Second, WriteTimeout: 500 * time.Millisecond,
		TLSConfig: &tls.Config{GetCertificate: NewSelfSigned("broker", nil, nil).Get, MinVersion: tls.VersionTLS12},
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
	case <-time.After(3 * writeByteTimeout):
		t.Fatal("the handler still writes")
	}
}
