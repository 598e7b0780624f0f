package catalog

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
)

// silent opens requests over one HTTP/2 connection and lets the catalog send no byte of an answer's body.
func silent(t *testing.T, address, path string, requests int) {
	t.Helper()
	conn, err := (&tls.Dialer{
		NetDialer: &net.Dialer{}, Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}, //nolint:gosec // Self-signed.
	}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(conn, conn)
	require.NoError(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	for i := range requests {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, field := range [][2]string{
			{":method", http.MethodGet}, {":scheme", "https"}, {":authority", address}, {":path", path}, {"accept-encoding", "gzip"},
		} {
			require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
		}
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
		}))
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A client that asks within the limits and does not read the answers takes little memory.
func TestAnswersThatNobodyReadsTakeLittleMemory(t *testing.T) {
	for name, path := range map[string]string{"files": "/vendor/preact.mjs", "the API": "/api/v1/openapi.json"} {
		t.Run(name, func(t *testing.T) {
			url, _ := running(t, newAPIServer(t, federationOf(3, 3, 9)...), func(cfg *Config) {
				cfg.TLS.Off = false
				cfg.TLS.CertFile, cfg.TLS.KeyFile = quickCertificate(t)
				cfg.Limits = caller.Limits{PerSecond: 50, Burst: 100, Streams: 10, TotalStreams: 1000, Connections: 512} // The defaults.
			})
			before := heap()
			for range 4 {
				silent(t, strings.TrimPrefix(url, "http://"), path, 100)
			}
			time.Sleep(3 * time.Second)
			took := heap() - before
			t.Logf("%d MiB", took>>20)
			require.Less(t, took, uint64(64<<20))
		})
	}
}
