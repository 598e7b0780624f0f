package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
)

// executors are the two clients for exec and attach.
func executors(t *testing.T, server *httptest.Server, path string) map[string]remotecommand.Executor {
	t.Helper()
	target, err := url.Parse(server.URL + path)
	require.NoError(t, err)
	bySPDY, err := remotecommand.NewSPDYExecutor(caller(server), http.MethodPost, target)
	require.NoError(t, err)
	byWebSocket, err := remotecommand.NewWebSocketExecutorForProtocols(caller(server), http.MethodGet, target.String(), "v4.channel.k8s.io")
	require.NoError(t, err)
	return map[string]remotecommand.Executor{"SPDY": bySPDY, "WebSocket": byWebSocket}
}

const (
	execPath   = "/exec/ns/pod/main?command=cat&command=-&input=1&output=1"
	attachPath = "/attach/ns/pod/main?input=1&output=1"
	logsPath   = "/containerLogs/ns/pod/main"
)

func TestExecAndAttachReachThePodAtItsProvider(t *testing.T) {
	provider := newAPIServer(t)
	server := serve(t, t.Context(), provider.config())
	for path, want := range map[string]string{execPath: "main cat -: ", attachPath: "main attached: "} {
		for by, executor := range executors(t, server, path) {
			// A WebSocket client cannot close its input before version 5 of the protocol.
			ctx, cancel := context.WithCancel(t.Context())
			in, input := io.Pipe()
			output, out := io.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out}) }()
			_, err := io.WriteString(input, "hello")
			require.NoError(t, err)
			got := make([]byte, len(want)+5)
			_, err = io.ReadFull(output, got)
			require.NoError(t, err, by)
			require.Equal(t, want+"hello", string(got), by)
			require.NoError(t, input.Close())
			if by == "SPDY" {
				require.NoError(t, <-ended)
			} else {
				cancel()
				t.Log(<-ended)
			}
			cancel()
			<-provider.ended
		}
	}
}

func TestTheExitCodeAndTheTerminalReachTheOtherSide(t *testing.T) {
	provider := newAPIServer(t)
	server := serve(t, t.Context(), provider.config())
	for by, executor := range executors(t, server, "/exec/ns/pod/main?command=fail&output=1&error=1") {
		var out, problems bytes.Buffer
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &problems})
		var exit clientexec.CodeExitError
		require.ErrorAs(t, err, &exit, by)
		require.Equal(t, 7, exit.Code, by)
		require.Equal(t, "no\n", problems.String(), by)
	}
	for by, executor := range executors(t, server, "/exec/ns/pod/main?command=size&output=1&tty=1&input=1") {
		var out bytes.Buffer
		sizes := &once{size: &remotecommand.TerminalSize{Width: 3, Height: 1}}
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin: strings.NewReader(""), Stdout: &out, Tty: true, TerminalSizeQueue: sizes,
		})
		require.NoError(t, err, by)
		require.Equal(t, "xxx", out.String(), by)
	}
}

// once is a terminal with one size.
type once struct{ size *remotecommand.TerminalSize }

func (o *once) Next() *remotecommand.TerminalSize {
	size := o.size
	o.size = nil
	return size
}

func TestPortForwardReachesThePodAtItsProvider(t *testing.T) {
	provider := newAPIServer(t)
	server := serve(t, t.Context(), provider.config())
	transport, upgrader, err := spdy.RoundTripperFor(caller(server))
	require.NoError(t, err)
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, address(t, server, "/portForward/ns/pod"))
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	ports, err := forwarder.GetPorts()
	require.NoError(t, err)
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))))
	require.NoError(t, err)
	_, err = io.WriteString(conn, "hello")
	require.NoError(t, err)
	echo := make([]byte, 5)
	_, err = io.ReadFull(conn, echo)
	require.NoError(t, err)
	require.Equal(t, "hello", string(echo))
	require.NoError(t, conn.Close())
	close(stop)
	require.NoError(t, <-ended)
}

func TestPortForwardByWebSocketReachesTheProvider(t *testing.T) {
	provider := newAPIServer(t)
	provider.instead = func(w http.ResponseWriter, r *http.Request) {
		upgrader := websocket.Upgrader{Subprotocols: []string{"v4.channel.k8s.io"}}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		if kind, message, err := conn.ReadMessage(); err == nil {
			_ = conn.WriteMessage(kind, append([]byte(r.URL.Path+"?"+r.URL.RawQuery+" "), message...))
		}
	}
	server := serve(t, t.Context(), provider.config())
	tlsConfig, err := rest.TLSConfigFor(caller(server))
	require.NoError(t, err)
	dialer := websocket.Dialer{
		TLSClientConfig: tlsConfig, Subprotocols: []string{"base64url.bearer.authorization.k8s.io.c2VjcmV0", "v4.channel.k8s.io"},
	}
	conn, response, err := dialer.Dial("wss"+strings.TrimPrefix(server.URL, "https")+"/portForward/ns/pod?port=8080", nil)
	require.NoError(t, err)
	response.Body.Close()
	defer conn.Close()
	require.Equal(t, "v4.channel.k8s.io", conn.Subprotocol())
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, []byte("hello")))
	_, message, err := conn.ReadMessage()
	require.NoError(t, err)
	require.Equal(t, "/prefix/api/v1/namespaces/remote/pods/pod/portforward?ports=8080 hello", string(message))
	require.Equal(t, []string{"v4.channel.k8s.io"}, provider.last(t).Header.Values("Sec-Websocket-Protocol"))
}

func TestLogs(t *testing.T) {
	provider := newAPIServer(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server := serve(t, ctx, provider.config())
	for query, want := range map[string]string{
		"": "container=main",
		"?tailLines=0&sinceSeconds=3&limitBytes=9":               "container=main&limitBytes=9&sinceSeconds=3&tailLines=0",
		"?previous=true&timestamps=true":                         "container=main&previous=true&timestamps=true",
		"?sinceTime=2026-01-02T03:04:05Z":                        "container=main&sinceTime=2026-01-02T03%3A04%3A05Z",
		"?container=other&insecureSkipTLSVerifyBackend=true&x=y": "container=main",
	} {
		code, body := get(t, server, logsPath+query)
		require.Equal(t, http.StatusOK, code, query)
		require.Equal(t, want+"\n", body, query)
	}
}

func TestAFollowedLogEndsWithTheServerAndWithTheCaller(t *testing.T) {
	for _, ends := range []string{"server", "caller"} {
		provider := newAPIServer(t)
		ctx, stopServer := context.WithCancel(t.Context())
		callerCtx, stopCaller := context.WithCancel(t.Context())
		server := serve(t, ctx, provider.config())
		request, err := http.NewRequestWithContext(callerCtx, http.MethodGet, server.URL+logsPath+"?follow=true", http.NoBody)
		require.NoError(t, err)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		line, err := bufio.NewReader(response.Body).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "container=main&follow=true\n", line, "it arrives at once")
		if ends == "server" {
			stopServer()
		} else {
			stopCaller()
		}
		<-provider.ended
		_, _ = io.Copy(io.Discard, response.Body) // The body ends.
		response.Body.Close()
		stopServer()
		stopCaller()
	}
}

func TestAnUpgradedConnectionEndsWithTheServerAndWithTheCaller(t *testing.T) {
	for _, ends := range []string{"server", "caller"} {
		for _, by := range []string{"SPDY", "WebSocket"} {
			provider := newAPIServer(t)
			ctx, stopServer := context.WithCancel(t.Context())
			callerCtx, stopCaller := context.WithCancel(t.Context())
			executor := executors(t, serve(t, ctx, provider.config()), execPath)[by]
			in, input := io.Pipe()
			output, out := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- executor.StreamWithContext(callerCtx, remotecommand.StreamOptions{Stdin: in, Stdout: out})
			}()
			_, err := io.ReadFull(output, make([]byte, len("main cat -: ")))
			require.NoError(t, err)
			if ends == "server" {
				stopServer()
			} else {
				stopCaller()
			}
			t.Log(<-ended)
			<-provider.ended
			require.NoError(t, input.Close())
			stopServer()
			stopCaller()
		}
	}
}

// TestAnUpgradedConnectionEndsAsAWhole makes the fixture wait for the handler, while the provider keeps its side open.
func TestAnUpgradedConnectionEndsAsAWhole(t *testing.T) {
	provider := newAPIServer(t)
	conns := make(chan net.Conn, 1)
	t.Cleanup(func() { (<-conns).Close() })
	provider.instead = func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
			_ = buffered.Flush()
			conns <- conn
		}
	}
	server := serve(t, t.Context(), provider.config())
	client, err := tls.Dial("tcp", strings.TrimPrefix(server.URL, "https://"), &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	_, err = io.WriteString(client, "POST "+execPath+" HTTP/1.1\r\nHost: broker\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	require.NoError(t, err)
	status, err := bufio.NewReader(client).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 101 Switching Protocols\r\n", status)
	require.NoError(t, client.Close())
}

func TestOnlyTheIdentityOfThisClusterReachesTheProvider(t *testing.T) {
	provider := newAPIServer(t)
	server := serve(t, t.Context(), provider.config())
	for _, path := range []string{logsPath, execPath} {
		request, err := http.NewRequest(http.MethodGet, server.URL+path, strings.NewReader("a body"))
		require.NoError(t, err)
		request.Header = http.Header{
			"Authorization": {"Bearer token-of-the-caller"}, "Impersonate-User": {"admin"}, "Cookie": {"a=b"},
			"X-Remote-User": {"admin"}, "X-Forwarded-For": {"192.0.2.1"}, "User-Agent": {"caller"},
		}
		if path == execPath {
			request.Header.Set("Connection", "Upgrade")
			request.Header.Set("Upgrade", "SPDY/3.1")
			request.Header.Set("X-Stream-Protocol-Version", "v4.channel.k8s.io")
		}
		response, err := server.Client().Transport.RoundTrip(request)
		require.NoError(t, err)
		response.Body.Close()
		seen := provider.last(t)
		require.Equal(t, "Bearer "+identity, seen.Header.Get("Authorization"))
		require.Equal(t, "broker", seen.Header.Get("User-Agent"))
		require.Equal(t, map[string]string{logsPath: http.MethodGet, execPath: http.MethodPost}[path], seen.Method)
		require.Zero(t, seen.ContentLength)
		for _, name := range []string{"Impersonate-User", "Cookie", "X-Remote-User", "X-Forwarded-For"} {
			require.Empty(t, seen.Header.Get(name), name)
		}
	}
}

// The three requests that reach a provider in different ways.
var requests = map[string]http.Header{
	logsPath:         {},
	execPath + "&a=": {"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}},
	"/portForward/ns/pod": {
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"eA=="}, "Sec-Websocket-Version": {"13"},
	},
}

func ask(t *testing.T, server *httptest.Server, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
	require.NoError(t, err)
	request.Header = requests[path].Clone()
	response, err := server.Client().Transport.RoundTrip(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestARedirectIsRefused(t *testing.T) {
	asked := false
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer inside.Close()
	provider := newAPIServer(t)
	provider.instead = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.URL, http.StatusTemporaryRedirect)
	}
	bare := provider.config()
	bare.WrapTransport = nil
	for want, config := range map[string]*rest.Config{
		"the provider's API server answered 307": bare, "the provider redirects to": provider.config(),
	} {
		server := serve(t, t.Context(), config)
		for path := range requests {
			code, body := ask(t, server, path)
			require.Equal(t, http.StatusBadGateway, code, path)
			require.Contains(t, body, want, path)
			require.NotContains(t, body, "no answer", path)
		}
		for by, executor := range executors(t, server, execPath) {
			err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard})
			require.ErrorContains(t, err, want, by)
		}
	}
	require.False(t, asked, "nothing follows it")
}

func TestAnAnswerThatIsNoStreamIsCut(t *testing.T) {
	provider := newAPIServer(t)
	provider.instead = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		for {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<10)); err != nil {
				return
			}
		}
	}
	server := serve(t, t.Context(), provider.config())
	for path := range requests {
		code, body := ask(t, server, path)
		require.Equal(t, http.StatusTeapot, code, path)
		require.Less(t, len(body), maxFailure+1<<10, path)
	}
	byWebSocket := executors(t, server, execPath)["WebSocket"]
	err := byWebSocket.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard})
	require.ErrorContains(t, err, "xxx")
	require.Less(t, len(err.Error()), maxFailure+1<<10)
}

func TestAHeaderWithoutEndIsCut(t *testing.T) {
	provider := newAPIServer(t)
	provider.instead = func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n")
		for i := 0; err == nil; i++ {
			_, err = fmt.Fprintf(conn, "X-%d: %s\r\n", i, strings.Repeat("x", 1<<10))
		}
	}
	server := serve(t, t.Context(), provider.config())
	for path := range requests {
		code, body := ask(t, server, path)
		require.Equal(t, http.StatusBadGateway, code, path)
		require.Contains(t, body, "no answer from the provider's API server", path)
	}
}

func TestTheProxyOfAKubeconfigIsUsed(t *testing.T) {
	provider := newAPIServer(t)
	passed := make(chan string, 9)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed <- r.Host
		up, err := net.Dial("tcp", strings.TrimPrefix(provider.URL, "https://"))
		if err != nil {
			return
		}
		defer up.Close()
		down, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer down.Close()
		_, _ = io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(up, down) }()
		_, _ = io.Copy(down, up)
	}))
	defer proxy.Close()
	config := provider.config()
	config.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }
	server := serve(t, t.Context(), config)
	code, _ := get(t, server, logsPath)
	require.Equal(t, http.StatusOK, code)
	for by, executor := range executors(t, server, "/exec/ns/pod/main?command=fail&output=1&error=1") {
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard})
		require.ErrorContains(t, err, "exit", by)
	}
	require.Len(t, passed, 3)
}

func TestFailures(t *testing.T) {
	const notFound = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods \"pod\" not found","reason":"NotFound","code":404}`
	answer := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, text)
		}
	}
	phrase := func(w http.ResponseWriter, _ *http.Request) { // In the reason phrase, which net/http sets itself.
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 401 a\x1b[2Jb\u202ec\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nwho")
	}
	for name, tc := range map[string]struct {
		pod     string
		instead http.HandlerFunc
		code    int
		message string
	}{
		"what cannot be shown is not": {
			pod: "pod", instead: answer(503, `{"kind":"Status","message":"\u001b[2Ja\rb\u202ec\u0000d"}`), code: 503,
			message: " [2Ja b c d",
		},
		"nor in a phrase": {
			pod: "pod", instead: phrase, code: 502, message: "the provider's API server answered 401 a [2Jb c: who",
		},
		"a pod that there is not": {pod: "none", code: 404, message: "pod ns/none not found on node broker"},
		"a pod that waits":        {pod: "waiting", code: 400, message: "pod ns/waiting is not assigned to a provider yet"},
		"a provider that is not connected": {
			pod: "astray", code: 500, message: "provider q of VirtualNode q2 is not connected, or does not have namespace ns",
		},
		"the provider does not know the pod": {pod: "pod", instead: answer(404, notFound), code: 404, message: `pods "pod" not found`},
		"the provider has an error in words": {pod: "pod", instead: answer(503, "overloaded"), code: 503, message: "overloaded"},
		"the provider does not know the broker": {
			pod: "pod", instead: answer(401, "who"), code: 502, message: "the provider's API server answered 401 Unauthorized: who",
		},
		"the provider forbids it": {
			pod: "pod", instead: answer(403, "no"), code: 502, message: "the provider's API server answered 403 Forbidden: no",
		},
		"what answers is no API server": {
			pod: "pod", instead: answer(404, "<html>a page of another server</html>"), code: 404,
			message: "the provider's response is not a Kubernetes Status",
		},
		"the provider does not upgrade": {
			pod: "pod", instead: answer(204, ""), code: 502,
			message: "the provider's API server answered 204 No Content: the provider's response is not a Kubernetes Status",
		},
	} {
		t.Run(name, func(t *testing.T) {
			provider := newAPIServer(t)
			provider.instead = tc.instead
			server := serve(t, t.Context(), provider.config())
			code, body := get(t, server, "/containerLogs/ns/"+tc.pod+"/main")
			require.Equal(t, tc.code, code)
			require.Equal(t, tc.message+"\n", body, "a log's reader is shown the text as it is")

			executor, err := remotecommand.NewSPDYExecutor(caller(server), http.MethodPost,
				address(t, server, "/exec/ns/"+tc.pod+"/main?command=x&output=1"))
			require.NoError(t, err)
			err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
			require.EqualError(t, err, tc.message)
		})
	}

	provider := newAPIServer(t)
	server := serve(t, t.Context(), provider.config())
	provider.Close()
	code, body := get(t, server, logsPath)
	require.Equal(t, http.StatusBadGateway, code)
	require.Contains(t, body, "no answer from the provider's API server")
	code, body = get(t, server, execPath)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, body, "exec requires an upgrade request")
}

func TestOneProviderDoesNotTakeAllStreams(t *testing.T) {
	slow := newAPIServer(t)
	slow.instead = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "line\n")
		if r.URL.Query().Has("follow") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
	server := serve(t, t.Context(), slow.config())
	const othersPath = "/containerLogs/consumer2/theirs/main"
	follow := func(path string) (code int, body io.ReadCloser) {
		response, err := server.Client().Get(server.URL + path + "?follow=true")
		require.NoError(t, err)
		t.Cleanup(func() { response.Body.Close() })
		return response.StatusCode, response.Body
	}
	var streams []io.ReadCloser
	followed := func(path string) {
		for range ofConsumer {
			code, body := follow(path)
			require.Equal(t, http.StatusOK, code)
			streams = append(streams, body)
		}
	}
	followed(logsPath)
	code, body := get(t, server, logsPath)
	require.Equal(t, http.StatusTooManyRequests, code)
	require.Contains(t, body, `too many requests at once for pods of the consumer "consumer1" to the provider q (at most 56 logs`)
	code, _ = get(t, server, "/containerLogs/ns/third/main")
	require.Equal(t, http.StatusOK, code, "that of another provider")
	followed(othersPath)
	require.NoError(t, streams[0].Close()) // The consumer has capacity again, and uses it.
	require.Eventually(t, func() bool {
		code, body := follow(logsPath)
		streams[0] = body
		return code == http.StatusOK
	}, 20*time.Second, 20*time.Millisecond)
	code, body = get(t, server, "/containerLogs/consumer3/theirs/main")
	require.Equal(t, http.StatusTooManyRequests, code)
	require.Contains(t, body, "too many requests at once to the provider q (at most 112 logs, execs, attaches and port-forwards)")
	const message = "too many requests at once for pods of the consumer"
	for path := range requests {
		code, body := ask(t, server, path)
		require.Equal(t, http.StatusTooManyRequests, code, path)
		require.Contains(t, body, message, path)
	}
	for by, executor := range executors(t, server, execPath) {
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard})
		require.ErrorContains(t, err, message, by)
	}
	require.NoError(t, streams[0].Close())
	require.Eventually(t, func() bool {
		code, _ := get(t, server, logsPath)
		return code == http.StatusOK
	}, 20*time.Second, 20*time.Millisecond)
}
