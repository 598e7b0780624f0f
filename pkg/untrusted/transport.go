package untrusted

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// The limits for reading one answer, in bytes. Watches, logs and upgraded connections have no limit: they are read as a
// stream.
const (
	// maxHealth is ample for /readyz?verbose.
	maxHealth = 64 << 10
	// maxError is for the answer that a request failed. Its decoded causes may need forty times as much memory.
	maxError = 512 << 10
	// maxObject is more than twice etcd's limit for an object.
	maxObject = 4 << 20
	// maxList is for a list or one chunk of it, and for the metrics of all pods. Reflectors get a list in one piece:
	// 10,000 pods of 5 kB have 50 MB.
	maxList = 128 << 20
)

// maxTarget bounds the part of a redirect's target that an error shows (bytes).
const maxTarget = 200

// Wrap makes every client of the config reject redirects, and answers that are too long. Redirects could lead a client
// to any address that this cluster reaches, and its answer to the readers of logs and conditions. Answers are not
// compressed, because 700 kB may become gigabytes; only lists that are read piece by piece (Next) request compression.
// Clients for exec, attach and port-forward do not dial with the transport of the config, but they wrap theirs in the
// same way.
func Wrap(config *rest.Config) {
	prefix := ""
	if host, _, err := rest.DefaultServerUrlFor(config); err == nil {
		prefix = strings.TrimSuffix(host.Path, "/")
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		_, bySPDY := next.(*spdy.SpdyRoundTripper)
		return transport{next: next, prefix: prefix, bySPDY: bySPDY}
	})
}

// RedirectError is the error of a request that was answered by a redirect.
type RedirectError struct {
	// Code is the status code, Target a part of the answer's Location.
	Code   int
	Target string
}

// Error implements error.
func (e *RedirectError) Error() string {
	return fmt.Sprintf("the provider redirects to %q (status %d): redirects are not followed", e.Target, e.Code)
}

// TooLongError is the error of an answer that is longer than its limit.
type TooLongError struct {
	// Limit in bytes.
	Limit int64
}

// Error implements error.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("the provider's response exceeds the limit of %d bytes", e.Limit)
}

// compressed is the Accept-Encoding of a request whose reader bounds the decompressed data. net/http decompresses
// nothing for it.
const compressed = "gzip"

// transport is a RoundTripper that rejects such answers.
type transport struct {
	next http.RoundTripper
	// prefix is the path of the API server's URL, without a slash at the end.
	prefix string
	// bySPDY is true for the transport by which client-go opens exec, attach and port-forward.
	bySPDY bool
}

// WrappedRoundTripper lets client-go find the transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper. Its errors are RedirectError, TooLongError, and the errors of the transport
// below.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	// With this header net/http does not decompress. rest.Config has DisableCompression, but not for HTTP without TLS.
	req = req.Clone(req.Context())
	if req.Header.Get("Accept-Encoding") != compressed {
		req.Header.Set("Accept-Encoding", "identity")
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if t.bySPDY && resp.StatusCode != http.StatusSwitchingProtocols {
		// Closing this body would read all of it, however long it is. No other request uses its connection.
		resp.Body = io.NopCloser(resp.Body)
	}
	if location := resp.Header.Get("Location"); location != "" && resp.StatusCode/100 == 3 {
		_ = resp.Body.Close()
		return nil, &RedirectError{Code: resp.StatusCode, Target: Cut(location, maxTarget)}
	}
	limit := int64(maxHealth) // An answer that announces no more than the least limit needs no other.
	if resp.ContentLength < 0 || resp.ContentLength > limit || resp.StatusCode == http.StatusSwitchingProtocols {
		limit = limitOf(t.relative(req), resp.StatusCode)
	}
	if limit == 0 {
		return resp, nil
	}
	if resp.ContentLength > limit {
		_ = resp.Body.Close()
		return nil, &TooLongError{Limit: limit}
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, limit: limit, left: limit}
	return resp, nil
}

// relative returns the request as the API server without a prefix sees it.
func (t transport) relative(req *http.Request) *http.Request {
	path, ok := strings.CutPrefix(req.URL.Path, t.prefix)
	if t.prefix == "" || !ok {
		return req
	}
	return &http.Request{Method: req.Method, URL: &url.URL{Path: path, RawQuery: req.URL.RawQuery}}
}

// paths reads the paths of requests as an API server does. It is never changed.
var paths = request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// limitOf returns the number of bytes of an answer that are read; 0 if it is a stream.
func limitOf(req *http.Request, status int) int64 {
	switch {
	case status == http.StatusSwitchingProtocols:
		return 0
	case status/100 != 2:
		return maxError
	}
	switch req.URL.Path {
	case "/readyz", "/livez", "/healthz":
		return maxHealth
	}
	of, err := paths.NewRequestInfo(req)
	switch {
	case err != nil || !of.IsResourceRequest:
		return maxObject
	case of.Verb == "watch", of.Resource == "pods" && of.Subresource == "log":
		return 0
	case of.Verb == "list", of.Verb == "deletecollection", of.APIGroup == metricAgent:
		return maxList
	}
	return maxObject
}

// metricAgent is the API group of Liqo's metric agent. Its one object has the metrics of all pods.
const metricAgent = "metrics.liqo.io"

// boundedBody ends with an error if there is more than the limit.
type boundedBody struct {
	io.ReadCloser
	limit, left int64
}

// Read implements io.Reader. It reads one byte more than is left, to tell an answer of that length from a longer one.
func (b *boundedBody) Read(data []byte) (int, error) {
	if b.left < 0 {
		return 0, &TooLongError{Limit: b.limit}
	}
	if int64(len(data)) > b.left+1 {
		data = data[:b.left+1]
	}
	n, err := b.ReadCloser.Read(data)
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, &TooLongError{Limit: b.limit}
	}
	return n, err
}
