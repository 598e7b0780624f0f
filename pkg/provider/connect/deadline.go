package connect

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/liqotech/liqo/pkg/utils/restcfg"
)

// Limit sets Liqo's rate limits (--client-qps, --client-max-burst, --client-timeout: restcfg reads them from its flags)
// and a deadline on every request that must end by itself. Liqo's --client-timeout is not suitable for that: it also
// cuts off watches and streams.
func Limit(config *rest.Config, timeout time.Duration) {
	restcfg.SetRateLimiter(config)
	if timeout <= 0 {
		return
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return deadline{next: next, timeout: timeout}
	})
}

// deadline is a RoundTripper that ends a request, including the reading of its response, after timeout. Liqo's
// reflectors make their requests with context.Background(): a request that hangs would block a worker indefinitely.
type deadline struct {
	next    http.RoundTripper
	timeout time.Duration
}

// WrappedRoundTripper lets client-go find the transport below.
func (d deadline) WrappedRoundTripper() http.RoundTripper { return d.next }

func (d deadline) RoundTrip(req *http.Request) (*http.Response, error) {
	if longRunning(req) {
		return d.next.RoundTrip(req)
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), d.timeout,
		fmt.Errorf("no answer within %s (--request-timeout)", d.timeout))
	resp, err := d.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		defer cancel()
		if cause := context.Cause(ctx); cause != nil && req.Context().Err() == nil {
			return nil, fmt.Errorf("%w: %w", cause, err)
		}
		return nil, err
	}
	resp.Body = &bodyWithDeadline{ReadCloser: resp.Body, cancel: cancel}
	return resp, nil
}

// bodyWithDeadline stops the deadline's timer once the response has been read.
type bodyWithDeadline struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *bodyWithDeadline) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// longRunning reports whether a request is a watch or a stream, by the criteria of the API server (its
// LongRunningFunc): the verb watch, and the subresources that stream.
func longRunning(req *http.Request) bool {
	if isWatch(req) {
		return true
	}
	for _, subresource := range []string{"/log", "/exec", "/attach", "/portforward", "/proxy"} {
		if strings.HasSuffix(req.URL.Path, subresource) {
			return true
		}
	}
	return false
}

func isWatch(req *http.Request) bool {
	watch := req.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}
