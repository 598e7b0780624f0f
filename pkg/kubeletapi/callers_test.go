package kubeletapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

// serveStreams starts a server as Run does, with the limits. Its callers have the tokens "good" and "other".
func serveStreams(t *testing.T, strangers, ofCaller int) *httptest.Server {
	t.Helper()
	proxy := map[string]bool{"proxy": true}
	api := &reviews{
		tokens:  map[string]string{"good": "user", "other": "another", "stranger": "stranger"},
		allowed: map[string]map[string]bool{"user": proxy, "another": proxy},
	}
	gate, err := newGate(Config{
		Log: testr.New(t), NodeName: "vnode", ClientCAFile: newAuthority(t).file(), Local: api.client(),
	})
	require.NoError(t, err)
	gate.callers, gate.requests = httpserve.NewCallers(strangers, httpserve.NewShares(ofCaller)), httpserve.NewShares(ofCaller)
	server := httptest.NewUnstartedServer(gate.protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "line\n")
		if r.URL.Query().Has("follow") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})))
	server.Config.ConnContext = gate.callers.ConnContext
	server.Listener = gate.callers.Listener(server.Listener)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// follow opens a stream on its own connection, or on the connection of an HTTP/2 client.
func follow(t *testing.T, client *http.Client, server *httptest.Server, token string) (code int, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+logsPath+"?follow", http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	require.NoError(t, err)
	_, err = bufio.NewReader(response.Body).ReadString('\n')
	require.NoError(t, err)
	stop = func() {
		cancel()
		response.Body.Close()
	}
	if response.StatusCode == http.StatusOK {
		t.Cleanup(stop)
	}
	return response.StatusCode, stop
}

func clientOf(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestOneCallerDoesNotTakeAllStreams(t *testing.T) {
	for name, http2 := range map[string]bool{"a connection for each": false, "all on one connection": true} {
		t.Run(name, func(t *testing.T) {
			server, client := serveStreams(t, 10, 3), clientOf(t, http2)
			var stop func()
			for range 3 {
				var code int
				code, stop = follow(t, client, server, "good")
				require.Equal(t, http.StatusOK, code)
			}
			code, body := caller{token: "good"}.get(t, server, logsPath)
			require.Equal(t, http.StatusTooManyRequests, code)
			require.Contains(t, body, "Too many requests at once (user=user")
			require.NotContains(t, body, ": ", "client-go would take it for YAML")

			code, _ = follow(t, client, server, "other")
			require.Equal(t, http.StatusOK, code, "another caller has its own")
			stop()
			require.Eventually(t, func() bool {
				code, _ := caller{token: "good"}.get(t, server, logsPath)
				return code == http.StatusOK
			}, 20*time.Second, 20*time.Millisecond)
		})
	}
}

func TestStrangersDoNotKeepCallersOut(t *testing.T) {
	server := serveStreams(t, strangers, OfCaller)
	client := clientOf(t, false)
	code, _ := follow(t, client, server, "good")
	require.Equal(t, http.StatusOK, code)

	var mu sync.Mutex
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	// As many as the limits of hosts and of all connections allow.
	for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
		var dialing sync.WaitGroup
		for range 8 {
			dialing.Go(func() {
				for range 64 {
					conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "https://"))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					open = append(open, conn)
					mu.Unlock()
				}
			})
		}
		dialing.Wait()
	}
	done := make(chan int, 1)
	go func() {
		code, _ := caller{token: "other"}.get(t, server, logsPath)
		done <- code
	}()
	select {
	case code := <-done:
		require.Equal(t, http.StatusOK, code)
	case <-time.After(20 * time.Second):
		t.Fatal("a caller has no connection")
	}
	code, _ = follow(t, client, server, "good")
	require.Equal(t, http.StatusOK, code)
	require.LessOrEqual(t, stillOpen(open), strangers)
}

// stillOpen counts the connections that the peer has not closed.
func stillOpen(conns []net.Conn) int {
	n := 0
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err != nil && strings.Contains(err.Error(), "timeout") {
			n++
		}
	}
	return n
}
