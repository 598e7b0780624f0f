package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/client-go/tools/remotecommand"
)

const (
	// streamIdle is the maximum idle time of exec and attach, as in the real kubelet.
	streamIdle = 4 * time.Hour
	// pingEvery is client-go's ping period.
	pingEvery = 5 * time.Second
)

// translate serves exec and attach over WebSocket, and uses SPDY to the provider. A WebSocket cannot be proxied: it is
// opened with GET, and at a provider Liqo allows this cluster to create these subresources, but not to get them.
func translate(w http.ResponseWriter, r *http.Request, transport http.RoundTripper, target *url.URL) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	connect := &dialer{transport: transport}
	executor, err := remotecommand.NewSPDYExecutorForTransports(connect, connect, http.MethodPost, target)
	if err != nil {
		return err
	}
	asked := target.Query()
	stream := func(client api.AttachIO) error {
		// virtual-kubelet also opens streams that were not requested. It does not pass the context of the request on,
		// and reads the exit code from the unwrapped error.
		options := remotecommand.StreamOptions{
			Tty: client.TTY(), TerminalSizeQueue: sizes{done: ctx.Done(), resize: client.Resize()},
		}
		if asked.Get("stdin") == "1" {
			options.Stdin = client.Stdin()
		}
		if asked.Get("stdout") == "1" {
			options.Stdout = client.Stdout()
		}
		if asked.Get("stderr") == "1" {
			options.Stderr = client.Stderr()
		}
		return executor.StreamWithContext(ctx, options)
	}
	api.PodHandler(api.PodHandlerConfig{
		RunInContainer: func(_ context.Context, _, _, _ string, _ []string, client api.AttachIO) error {
			return stream(client)
		},
		AttachToContainer: func(_ context.Context, _, _, _ string, client api.AttachIO) error { return stream(client) },
		StreamIdleTimeout: streamIdle,
	}, false).ServeHTTP(hijacking{ResponseWriter: w, closed: cancel}, r)
	return nil
}

// hijacking reports the end of the connection that a handler takes over. net/http cancels the context of a request when
// its connection ends, but not after a hijack, and virtual-kubelet continues to wait for the provider after its caller
// has disconnected.
type hijacking struct {
	http.ResponseWriter
	closed func()
}

func (h hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	stream, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return hijacked{Conn: stream, closed: h.closed}, buffered, nil
}

type hijacked struct {
	net.Conn
	closed func()
}

func (h hijacked) Close() error {
	h.closed()
	return h.Conn.Close()
}

// dialer opens one SPDY connection with the transport of the proxy. client-go's own dialer reads the whole answer if it
// is no upgrade, regardless of its length.
type dialer struct {
	transport http.RoundTripper
	ctx       context.Context // The context of the request, for NewConnection, which gets none.
	stream    io.ReadWriteCloser
	// failure is the reason why there is no stream. An error of RoundTrip would be shown with the URL at the provider.
	failure error
}

func (d *dialer) RoundTrip(r *http.Request) (*http.Response, error) {
	d.ctx = r.Context()
	r = r.Clone(r.Context())
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", spdy.HeaderSpdy31)
	response, err := d.transport.RoundTrip(r)
	if err != nil {
		return d.fail(r, noAnswer(err))
	}
	stream, ok := response.Body.(io.ReadWriteCloser)
	if err = check(response, http.StatusSwitchingProtocols); err == nil && !ok {
		err = noAnswer(errors.New("the upgraded connection is not writable"))
	}
	if err != nil {
		_ = response.Body.Close()
		return d.fail(r, err)
	}
	d.stream, response.Body = stream, http.NoBody // client-go closes the body.
	return response, nil
}

// fail keeps the failure for NewConnection, and returns an answer that client-go does not follow.
func (d *dialer) fail(r *http.Request, failure error) (*http.Response, error) {
	d.failure = failure
	return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// NewConnection implements client-go's spdy.Upgrader.
func (d *dialer) NewConnection(*http.Response) (httpstream.Connection, error) {
	if d.failure != nil {
		return nil, d.failure
	}
	stream := d.stream
	context.AfterFunc(d.ctx, func() { _ = stream.Close() }) // This also stops a provider that does not read any more.
	return spdy.NewClientConnectionWithPings(conn{stream: d.stream}, pingEvery)
}

// conn is the part of an upgraded connection that SPDY uses: it has no addresses and no deadlines.
type conn struct {
	net.Conn
	stream io.ReadWriteCloser
}

func (c conn) Read(data []byte) (int, error)  { return c.stream.Read(data) }
func (c conn) Write(data []byte) (int, error) { return c.stream.Write(data) }
func (c conn) Close() error                   { return c.stream.Close() }

// sizes are the sizes of the caller's terminal.
type sizes struct {
	done   <-chan struct{}
	resize <-chan api.TermSize
}

func (s sizes) Next() *remotecommand.TerminalSize {
	select {
	case size, ok := <-s.resize:
		if ok {
			return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
		}
	case <-s.done:
	}
	return nil
}
