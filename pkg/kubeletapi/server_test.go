package kubeletapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/api/statsv1alpha1"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
)

// echoPods is a node with one pod whose commands echo their input.
type echoPods struct{ following chan struct{} }

func (*echoPods) List(context.Context) ([]*corev1.Pod, error) {
	return []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}}, nil
}

func (*echoPods) Exec(_ context.Context, _, _, _ string, cmd []string, attach api.AttachIO) error {
	if _, err := io.WriteString(attach.Stdout(), strings.Join(cmd, " ")+": "); err != nil {
		return err
	}
	if _, err := io.Copy(attach.Stdout(), attach.Stdin()); err != nil {
		return err
	}
	if cmd[0] == "exit" {
		return fmt.Errorf("failed to execute command: %w", clientexec.CodeExitError{Err: errors.New("it failed"), Code: 42}) // As Liqo.
	}
	return nil
}

func (e *echoPods) Attach(ctx context.Context, ns, pod, container string, attach api.AttachIO) error {
	return e.Exec(ctx, ns, pod, container, []string{"attached"}, attach)
}

func (*echoPods) PortForward(_ context.Context, _, _ string, _ int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	_, err := io.CopyN(stream, stream, 5)
	return err
}

// Logs returns one line immediately, and ends only when the caller does.
func (e *echoPods) Logs(ctx context.Context, _, _, _ string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	if !opts.Follow {
		return io.NopCloser(strings.NewReader("line\n")), nil
	}
	reader, writer := io.Pipe()
	go func() {
		_, _ = io.WriteString(writer, "line\n")
		<-ctx.Done()
		writer.CloseWithError(ctx.Err())
		close(e.following)
	}()
	return reader, nil
}

func (*echoPods) Stats(context.Context) (*statsv1alpha1.Summary, error) {
	return &statsv1alpha1.Summary{Node: statsv1alpha1.NodeStats{NodeName: "vnode"}}, nil
}

func serveEcho(t *testing.T) (*httptest.Server, *echoPods) {
	t.Helper()
	api := &reviews{tokens: map[string]string{"good": "user"}, allowed: map[string]map[string]bool{
		"user": {"proxy": true, "metrics": true, "stats": true},
	}}
	pods := &echoPods{following: make(chan struct{})}
	cfg := Config{
		Log: testr.New(t), NodeName: "vnode", ClientCAFile: newAuthority(t).file(), Local: api.client(),
		Handler: NewHandler(testr.New(t), pods, func(_ context.Context, uri *url.URL) ([]byte, error) {
			if uri.Path == "/metrics/probes" {
				return nil, errors.New("not there")
			}
			return []byte("scraped " + uri.RequestURI() + "\n"), nil
		}),
	}
	gate, err := newGate(cfg)
	require.NoError(t, err)
	server := httptest.NewTLSServer(gate.protect(cfg.Handler))
	t.Cleanup(server.Close)
	return server, pods
}

func restConfig(server *httptest.Server, token string) *rest.Config {
	return &rest.Config{Host: server.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func target(t *testing.T, server *httptest.Server, path string) *url.URL {
	t.Helper()
	u, err := url.Parse(server.URL + path)
	require.NoError(t, err)
	return u
}

func TestExecAndAttachStreamThroughTheGate(t *testing.T) {
	server, _ := serveEcho(t)
	for path, want := range map[string]string{
		"/exec/ns/pod/c?command=cat&command=-&input=1&output=1": "cat -: hello",
		"/attach/ns/pod/c?input=1&output=1":                     "attached: hello",
	} {
		executor, err := remotecommand.NewSPDYExecutor(restConfig(server, "good"), http.MethodPost, target(t, server, path))
		require.NoError(t, err)
		var out bytes.Buffer
		err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out})
		require.NoError(t, err)
		require.Equal(t, want, out.String())

		executor, err = remotecommand.NewSPDYExecutor(restConfig(server, "bad"), http.MethodPost, target(t, server, path))
		require.NoError(t, err)
		err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out})
		require.ErrorContains(t, err, "Unauthorized")
	}
}

func TestExecReportsTheExitCode(t *testing.T) {
	server, _ := serveEcho(t)
	executor, err := remotecommand.NewSPDYExecutor(restConfig(server, "good"), http.MethodPost,
		target(t, server, "/exec/ns/pod/c?command=exit&input=1&output=1"))
	require.NoError(t, err)
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: io.Discard})
	var exit clientexec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 42, exit.ExitStatus())
}

func TestExecByWebsocketThroughTheGate(t *testing.T) {
	server, _ := serveEcho(t)
	dialer := websocket.Dialer{
		Subprotocols:    []string{"v4.channel.k8s.io"},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	address := "wss" + strings.TrimPrefix(server.URL, "https") + "/exec/ns/pod/c?command=true&input=1&output=1"

	_, response, err := dialer.Dial(address, nil)
	require.Error(t, err)
	require.Equal(t, http.StatusUnauthorized, response.StatusCode)
	response.Body.Close()

	conn, response, err := dialer.Dial(address, http.Header{"Authorization": {"Bearer good"}})
	require.NoError(t, err)
	response.Body.Close()
	defer conn.Close()
	const stdout = 1
	for {
		_, message, err := conn.ReadMessage()
		require.NoError(t, err)
		if len(message) > 1 {
			require.Equal(t, append([]byte{stdout}, "true: "...), message)
			return
		}
	}
}

func TestPortForwardStreamsThroughTheGate(t *testing.T) {
	server, _ := serveEcho(t)
	transport, upgrader, err := spdy.RoundTripperFor(restConfig(server, "good"))
	require.NoError(t, err)
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target(t, server, "/portForward/ns/pod"))
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	<-ready
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

func TestReadsThroughTheGate(t *testing.T) {
	server, _ := serveEcho(t)
	for path, want := range map[string]struct {
		code int
		body string
	}{
		logsPath:                  {200, "line\n"},
		"/metrics":                {200, "scraped /metrics\n"},
		"/metrics/cadvisor?a=b":   {200, "scraped /metrics/cadvisor?a=b\n"},
		"/metrics/resource":       {200, "scraped /metrics/resource\n"},
		"/metrics/probes":         {500, "Cannot scrape"},
		"/stats/summary":          {200, "vnode"},
		"/pods":                   {200, `"name":"pod"`},
		"/runningpods/":           {200, `"name":"pod"`},
		"/nothing/of/this/name/x": {404, "not found"},
	} {
		code, body := caller{token: "good"}.get(t, server, path)
		require.Equal(t, want.code, code, path)
		require.Contains(t, body, want.body, path)
	}
}

// TestRunStopsWithItsContext starts the real server, follows a log, and ends the context.
func TestRunStopsWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ca := newAuthority(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	pods := &echoPods{following: make(chan struct{})}

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, Config{
			Log: testr.New(t), NodeName: "vnode", NodeIP: "127.0.0.1", ClientCAFile: ca.file(),
			CertificateType: CertificateSelfSigned, Local: (&reviews{}).client(),
			Handler: NewHandler(testr.New(t), pods, nil),
		}, ln)
	}()

	transport := &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{*ca.client("root", "system:masters")},
		// The certificate is self-signed, but must be for this node.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			leaf := state.PeerCertificates[0]
			return errors.Join(leaf.VerifyHostname("vnode"), leaf.VerifyHostname("127.0.0.1"))
		},
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://"+ln.Addr().String()+logsPath+"?follow=true", http.NoBody)
	require.NoError(t, err)
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "line\n", line)

	stop()
	<-pods.following
	require.NoError(t, <-ended)
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ca := newAuthority(t)
	taken, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	err = Run(t.Context(), Config{
		Log: testr.New(t), NodeName: "vnode", NodeIP: "127.0.0.1", Port: uint16(port), ClientCAFile: ca.file(),
		CertificateType: CertificateSelfSigned, Local: (&reviews{}).client(),
	})
	require.ErrorContains(t, err, "--listen-port")
}
