package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// subresource is a subresource of pods.
type subresource string

const (
	logs        subresource = "log"
	exec        subresource = "exec"
	attach      subresource = "attach"
	portForward subresource = "portforward"
)

// proxied passes a request for a pod to the API server of the provider where the pod runs.
func (s *server) proxied(what subresource) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.proxy(w, r, what); err != nil {
			s.fail(w, r, err)
		}
	}
}

// proxy returns an error if it has not started to answer; otherwise nil.
func (s *server) proxy(w http.ResponseWriter, r *http.Request, what subresource) error {
	place, provider, err := s.locate(r.Context(), r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		return err
	}
	target := place.url(r, what)
	expected := http.StatusOK
	if what != logs {
		if !httpstream.IsUpgradeRequest(r) {
			return failuref(http.StatusBadRequest, "%s requires an upgrade request", what)
		}
		expected = http.StatusSwitchingProtocols
	}
	release, err := s.take(r.Context(), provider, r.PathValue("namespace"))
	if err != nil {
		return err
	}
	defer release()
	transport, err := s.transportFor(place.Config, expected)
	if err != nil {
		return err
	}
	defer utilnet.CloseIdleConnectionsFor(transport)
	if (what == exec || what == attach) && wsstream.IsWebSocketRequest(r) {
		return translate(w, r, transport, target)
	}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // At once.
		ErrorLog:      slog.NewLogLogger(logr.ToSlogHandler(s.Log.V(1)), slog.LevelInfo),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host, p.Out.Header = target, "", forwarded(p.Out.Header)
			p.Out.Body, p.Out.ContentLength = nil, 0
			if what != logs && !wsstream.IsWebSocketRequest(r) {
				p.Out.Method = http.MethodPost // As client-go opens SPDY. Liqo allows only to create exec and attach.
			}
		},
		ModifyResponse: func(response *http.Response) error { return check(response, expected) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			s.fail(w, r, noAnswer(err))
		},
	}
	proxy.ServeHTTP(w, r)
	return nil
}

// take counts a request to a provider for a pod of a namespace until release is called.
func (s *server) take(ctx context.Context, provider, namespace string) (release func(), err error) {
	var of corev1.Namespace
	if err := s.Reader.Get(ctx, types.NamespacedName{Name: namespace}, &of); err != nil {
		return nil, err
	}
	consumer := placement.ConsumerOf(&of)
	var taken []func()
	release = func() {
		for _, one := range taken {
			one()
		}
	}
	const these = "logs, execs, attaches and port-forwards"
	for _, limit := range []struct {
		shares *httpserve.Shares
		key    string
		what   string
	}{
		{
			s.consumers, consumer + " " + provider,
			fmt.Sprintf("for pods of the consumer %q to the provider %s (at most %d %s)", consumer, provider, ofConsumer, these),
		},
		{s.streams, provider, fmt.Sprintf("to the provider %s (at most %d %s)", provider, ofProvider, these)},
		{s.all, consumer, fmt.Sprintf("for pods of the consumer %q (at most as many as are free of %d %s)", consumer, ofAll, these)},
	} {
		one, ok := limit.shares.Take(limit.key)
		if !ok {
			release()
			return nil, failuref(http.StatusTooManyRequests, "too many requests at once %s", limit.what)
		}
		taken = append(taken, one)
	}
	return release, nil
}

// transportFor returns the transport of the config, without HTTP/2, which has no upgrades. An answer with another
// status than expected must end in time, too.
func (s *server) transportFor(config *rest.Config, expected int) (http.RoundTripper, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	config.DisableCompression = true // Compression would delay lines of a followed log.
	next, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return &timely{next: next, within: s.answerWithin, expected: expected}, nil
}

// url converts the URL of a request to the kubelet API into the URL at the provider.
func (p *Place) url(r *http.Request, what subresource) *url.URL {
	target := p.Kube.CoreV1().RESTClient().Get().Resource("pods").Namespace(p.Namespace).Name(r.PathValue("pod")).
		SubResource(string(what)).URL()
	asked, query := r.URL.Query(), url.Values{}
	for _, name := range what.parameters() {
		if values, ok := asked[name.kubelet]; ok {
			query[name.apiServer] = values
		}
	}
	if container := r.PathValue("container"); container != "" {
		query.Set("container", container)
	}
	target.RawQuery = query.Encode()
	return target
}

// parameter is a query parameter, with its names at a kubelet and at an API server.
type parameter struct{ kubelet, apiServer string }

func (what subresource) parameters() []parameter {
	switch what {
	case portForward:
		return []parameter{{corev1.PortHeader, "ports"}} // For WebSocket; SPDY has them in the headers of its streams.
	case logs:
		var same []parameter
		for _, name := range []string{
			"follow", "limitBytes", "previous", "sinceSeconds", "sinceTime", "stream", "tailLines", "timestamps",
		} {
			same = append(same, parameter{name, name})
		}
		return same
	default:
		return []parameter{
			{"command", "command"},
			{corev1.ExecTTYParam, "tty"},
			{corev1.ExecStdinParam, "stdin"},
			{corev1.ExecStdoutParam, "stdout"},
			{corev1.ExecStderrParam, "stderr"},
		}
	}
}

// bearerProtocol is the prefix of a WebSocket subprotocol that is a caller's token.
const bearerProtocol = "base64url.bearer.authorization.k8s.io." //nolint:gosec // It is the name of a protocol.

// forwarded returns the headers of a request that belong to the stream. A caller's credentials are not forwarded.
func forwarded(in http.Header) http.Header {
	out := http.Header{}
	for _, name := range []string{
		"Connection", "Upgrade", httpstream.HeaderProtocolVersion, "Sec-Websocket-Key", "Sec-Websocket-Version",
		"Sec-Websocket-Extensions",
	} {
		if values := in.Values(name); len(values) > 0 {
			out[http.CanonicalHeaderKey(name)] = values
		}
	}
	for _, protocols := range in.Values(wsstream.WebSocketProtocolHeader) {
		for protocol := range strings.SplitSeq(protocols, ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, bearerProtocol) {
				out.Add(wsstream.WebSocketProtocolHeader, protocol)
			}
		}
	}
	return out
}

// check returns the provider's error unless its answer has the expected status. A redirect is an error.
func check(response *http.Response, expected int) error {
	if response.StatusCode != expected {
		return answered(response)
	}
	if stream, ok := response.Body.(io.ReadWriteCloser); ok && expected == http.StatusSwitchingProtocols {
		response.Body = whole{stream}
	}
	return nil
}

// whole is an upgraded connection that closes completely when one direction ends, as in kube-apiserver.
type whole struct{ io.ReadWriteCloser }

func (w whole) Read(data []byte) (int, error) {
	n, err := w.ReadWriteCloser.Read(data)
	if errors.Is(err, io.EOF) {
		err = io.ErrClosedPipe
	}
	return n, err
}
