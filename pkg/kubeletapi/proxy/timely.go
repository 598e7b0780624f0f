package proxy

import (
	"context"
	"net/http"
	"time"
)

// timely cancels a request to a provider that does not answer with the expected status in time. The time includes the
// dial, the TLS handshake and the header of the answer, and the whole body of any other answer. A stream is not
// limited.
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
		_ = response.Body.Close() // The timeout has expired, or the caller has disconnected.
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
