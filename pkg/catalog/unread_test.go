package catalog

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve/unreadtest"
)

// ofConnection is how many requests a connection may have at once.
const ofConnection = 100

// withTLS serves HTTPS, with a certificate that is available from the start.
func withTLS(t *testing.T) func(*Config) {
	t.Helper()
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey("catalog", nil, nil)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, os.WriteFile(cert, certPEM, 0o600))
	require.NoError(t, os.WriteFile(key, keyPEM, 0o600))
	return func(cfg *Config) { cfg.TLS = TLSConfig{CertFile: cert, KeyFile: key, ClientCAFile: cert} }
}

// unread requests a path many times, from an address, and reads no byte of the answers' bodies until the test ends. It
// returns once all answers have begun: the number with each status, of answers without a body with the header
// Retry-After.
func unread(t *testing.T, url, from, path string, requests int) (begun map[string]int, closed func()) {
	t.Helper()
	begun = map[string]int{}
	var conns []net.Conn
	closed = func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
	t.Cleanup(closed)
	for left := requests; left > 0; left -= ofConnection {
		dialer := &tls.Dialer{
			NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}},
			Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}},
		}
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err)
		conns = append(conns, conn)
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		client, err := unreadtest.New(conn, 0)
		require.NoError(t, err)
		for range min(left, ofConnection) {
			require.NoError(t, client.Get(path))
		}
		for range min(left, ofConnection) {
			answer, err := client.Next()
			require.NoError(t, err)
			status := fmt.Sprint(answer.Status)
			if answer.Ended {
				status += " after " + answer.Header.Get("Retry-After")
			}
			begun[status]++
		}
	}
	return begun, closed
}

// heap is the heap in use, in bytes.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // Objects of a sync.Pool are free after the second one.
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestAnswersThatNobodyReadsTakeLittleMemory(t *testing.T) {
	for name, path := range map[string]string{"files": "/vendor/preact.mjs", "the API": "/api/v1/openapi.json"} {
		t.Run(name, func(t *testing.T) {
			url, _ := running(t, newAPIServer(t, federationOf(3, 3, 9)...), withTLS(t))
			unread(t, url, "127.0.0.2", path, 1)
			before := heap()
			begun, _ := unread(t, url, "127.0.0.1", path, 200)
			took := heap() - before
			t.Logf("%d KiB an answer", took>>10/200)
			require.Equal(t, map[string]int{"200": 200}, begun)
			require.Less(t, took, int64(20<<20))
		})
	}
}

func TestOneAddressDoesNotHoldAllRequests(t *testing.T) {
	for name, tc := range map[string]struct{ path, status string }{
		"files":                          {"/vendor/preact.mjs", "200"},
		"what fits in the server's room": {"/favicon.svg", "200"},
		"problems":                       {"/api/v1/nothing", "404"},
	} {
		t.Run(name, func(t *testing.T) {
			url, operators := running(t, newAPIServer(t, federationOf(3, 3, 9)...), withTLS(t))
			begun, closed := unread(t, url, "127.0.0.1", tc.path, 300)
			require.Equal(t, map[string]int{tc.status: 256, "429 after 1": 44}, begun)
			begun, _ = unread(t, url, "127.0.0.2", tc.path, 100)
			require.Equal(t, map[string]int{tc.status: 100}, begun, "another address has its own")
			c := &requester{t: t, url: operators}
			require.Contains(t, c.do(call{path: "/metrics"}).body, `liqo_catalog_refusals_total{reason="requests"} 44`)

			closed()
			require.Eventually(t, func() bool {
				begun, _ := unread(t, url, "127.0.0.1", tc.path, 1)
				return begun[tc.status] == 1
			}, 30*time.Second, 10*time.Millisecond)
		})
	}
}

func TestStreamsDoNotCountAsRequests(t *testing.T) {
	url, _ := running(t, newAPIServer(t, federationOf(3, 3, 9)...), withTLS(t), func(cfg *Config) {
		cfg.Limits = caller.Limits{PerSecond: 1e6, Burst: 1e6, Streams: 600, TotalStreams: 1200, Connections: 1000}
	})
	begun, _ := unread(t, url, "127.0.0.1", "/api/v1/events", 600)
	require.Equal(t, map[string]int{"200": 600}, begun)
}
