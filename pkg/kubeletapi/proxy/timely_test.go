package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// deaf is a provider that accepts connections and never answers.
func deaf(t *testing.T) *rest.Config {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	return &rest.Config{Host: "https://" + ln.Addr().String(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// silent never answers, not even after its caller has disconnected.
func silent(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.Copy(io.Discard, conn)
}

// drip writes an answer that never ends, in small pieces.
func drip(begin, piece string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		for _, err = io.WriteString(conn, begin); err == nil; _, err = io.WriteString(conn, piece) {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func TestAProviderThatHangsIsGivenUp(t *testing.T) {
	const hangs = "the provider's API server did not begin to answer within 500ms"
	for name, tc := range map[string]struct {
		instead http.HandlerFunc // nil: the provider never starts TLS.
		code    int
		message string
	}{
		"it does not begin TLS": {code: http.StatusGatewayTimeout, message: hangs},
		"it does not answer": {
			instead: silent, code: http.StatusGatewayTimeout, message: hangs,
		},
		"its header does not end": {
			instead: drip("HTTP/1.1 200 OK\r\n", "X: y\r\n"), code: http.StatusGatewayTimeout, message: hangs,
		},
		"its error does not end": {
			instead: drip("HTTP/1.1 500 Internal Server Error\r\n\r\n", "x"), code: http.StatusBadGateway, message: "500",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, within := deaf(t), 500*time.Millisecond
			if tc.code == http.StatusBadGateway {
				within *= 4 // It starts to answer in time, also on a busy machine.
			}
			if tc.instead != nil {
				provider := newAPIServer(t)
				provider.instead = tc.instead
				config = provider.config()
			}
			server := httptest.NewTLSServer(handler(t, within, config))
			defer server.Close()
			for path := range requests {
				code, body := ask(t, server, path)
				require.Equal(t, tc.code, code, path)
				require.Contains(t, body, tc.message, path)
			}
			for by, executor := range executors(t, server, execPath) {
				err := executor.StreamWithContext(t.Context(),
					remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard})
				require.ErrorContains(t, err, tc.message, by)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnUpgradeEndsInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		takes  time.Duration
		status int
		// failed means an error in time; ended means an answer whose rest is not read.
		failed, ended bool
	}{
		"a stream goes on":                     {takes: answerWithin - time.Second, status: http.StatusSwitchingProtocols},
		"a stream that begins too late":        {takes: answerWithin + time.Second, status: http.StatusSwitchingProtocols, failed: true},
		"another answer has to end in time":    {takes: time.Second, status: http.StatusForbidden, ended: true},
		"also one that begins when it is late": {takes: answerWithin - time.Second, status: http.StatusOK, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked context.Context
				transport := &timely{within: answerWithin, expected: http.StatusSwitchingProtocols, next: roundTrip(
					func(r *http.Request) (*http.Response, error) {
						asked = r.Context()
						select {
						case <-time.After(tc.takes):
							return &http.Response{StatusCode: tc.status}, nil
						case <-asked.Done():
							return nil, asked.Err()
						}
					},
				)}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				_, err := transport.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody))
				if tc.failed {
					var status kerrors.APIStatus
					require.ErrorAs(t, err, &status)
					require.EqualValues(t, http.StatusGatewayTimeout, status.Status().Code)
					require.Equal(t, answerWithin, time.Since(began))
					return
				}
				require.NoError(t, err)
				time.Sleep(time.Hour)
				require.Equal(t, tc.ended, asked.Err() != nil)
			})
		})
	}
}

// raw sends a request on a connection of its own, and returns it with the status line of the answer.
func raw(t *testing.T, server *httptest.Server, request string) (net.Conn, string, error) {
	t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "https://"))
	if err != nil {
		return nil, "", err
	}
	if _, err = io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")+"\r\n"); err != nil {
		return nil, "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, "", err
	}
	return conn, answer.Status, nil
}

const (
	webSocket = "Host: broker\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: eHh4eHh4eHh4eHh4eHh4eA==\n" +
		"Sec-WebSocket-Version: 13\nSec-WebSocket-Protocol: v4.channel.k8s.io\n"
	bySPDY = "Host: broker\nConnection: Upgrade\nUpgrade: SPDY/3.1\nX-Stream-Protocol-Version: v4.channel.k8s.io\n"
)

// TestAWebSocketEndsWithItsCaller uses a provider that does not close its side.
func TestAWebSocketEndsWithItsCaller(t *testing.T) {
	provider := newAPIServer(t)
	routes, ended := handler(t, answerWithin, provider.config()), make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		routes.ServeHTTP(w, r)
	}))
	defer server.Close()
	conn, status, err := raw(t, server, "GET /exec/ns/pod/main?command=hang&input=1&output=1 HTTP/1.1\n"+webSocket)
	require.NoError(t, err)
	require.Contains(t, status, "101")
	<-provider.begun
	require.NoError(t, conn.Close())
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the request goes on")
	}
}

func TestAbortedStreamsLeaveNothingBehind(t *testing.T) {
	const (
		streams = 500
		pause   = 50 * time.Millisecond
	)
	provider := newAPIServer(t)
	provider.begun, provider.ended = make(chan struct{}, streams), make(chan struct{}, streams)
	server := serve(t, t.Context(), provider.config())
	kinds := []string{
		"GET " + logsPath + "?follow=true HTTP/1.1\nHost: broker\n",
		"POST " + execPath + " HTTP/1.1\n" + bySPDY,
		"GET " + execPath + " HTTP/1.1\n" + webSocket,
		"GET " + attachPath + " HTTP/1.1\n" + webSocket,
		"POST /portForward/ns/pod HTTP/1.1\n" + strings.ReplaceAll(bySPDY, "v4.channel", "portforward"),
	}
	before := runtime.NumGoroutine()
	var begun atomic.Int32
	var group errgroup.Group
	group.SetLimit(20)
	for i := range streams {
		group.Go(func() error {
			// Other goroutines may not have ended yet, on a busy machine.
			return wait.PollUntilContextTimeout(t.Context(), pause, time.Minute, true, func(context.Context) (bool, error) {
				conn, status, err := raw(t, server, kinds[i%len(kinds)])
				if err != nil {
					return false, err
				}
				if strings.HasPrefix(status, "200") || strings.HasPrefix(status, "101") {
					begun.Add(1)
				}
				return !strings.HasPrefix(status, "429"), conn.Close()
			})
		})
	}
	require.NoError(t, group.Wait())
	require.Greater(t, begun.Load(), int32(streams*9/10), "all but those that took too long on a busy machine")
	const slack = 5 // The goroutines of one connection that is being accepted or closed.
	// The provider waits for a stream on a connection that has been closed in the meantime.
	err := wait.PollUntilContextTimeout(t.Context(), pause, time.Minute, true, func(context.Context) (bool, error) {
		return runtime.NumGoroutine() <= before+slack, nil
	})
	if err != nil {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	require.NoError(t, err, "%d goroutines, %d before", runtime.NumGoroutine(), before)
}
