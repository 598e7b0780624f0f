package proxy

import (
	"context"
	"net/http"
	"time"
)

// timely gives up a request to a provider that does not answer with the expected status in time: to dial, the handshake of
// TLS and the header of the answer count, and the whole of any other answer. A stream may go on.
type timely struct {
	next     http.RoundTripper
	within   time.Duration
	expected int
}

// WrappedRoundTripper lets Kubernetes' libraries find the transport below.
func (t *timely) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *timely) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(t.within, cancel)
	context.AfterFunc(r.Context(), func() { timer.Stop() })
	response, err := t.next.RoundTrip(r.WithContext(ctx))
	if err == nil && response.StatusCode == t.expected && !timer.Stop() {
		_ = response.Body.Close() // The time was over, or the caller had left.
		cancel()
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil && r.Context().Err() == nil {
			err = failuref(http.StatusGatewayTimeout, "the provider's API server did not begin to answer within %s", t.within)
		}
		cancel()
		return nil, err
	}
	return response, nil
}
