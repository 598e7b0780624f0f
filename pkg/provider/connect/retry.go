package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

const (
	// firstRetry and lastRetry bound the pause before an attempt to reach a cluster that does not answer. Half of it is
	// jitter.
	firstRetry, lastRetry = time.Second, 5 * time.Second
	// spread is the time over which the waiting watches are sent again, after the first one is answered.
	spread = time.Second
	// failuresUntilLogged is the number of failed attempts after which the failure is logged.
	failuresUntilLogged = 3
	// mostAlone is how many times a request may fail while others are answered before its error is returned.
	mostAlone = 3
)

// RetryWatches makes the clients of the config watch again within seconds when the cluster is back. client-go's
// informers wait longer after each failed attempt, up to 60 s (backoffManager of cache.Reflector), and cannot be told
// that the cluster is back. So a request for a watch is sent again here if it gets no answer, or only a gateway's
// answer without a server. This ends when the request is answered, when its context ends, or when it has failed
// mostAlone times after others were answered. The waiting watches share one back-off: one of them is sent at a time,
// and when one is answered, all others are sent.
func RetryWatches(config *rest.Config, log logr.Logger) {
	away := &away{turn: make(chan struct{}, 1), answered: make(chan struct{}), log: log}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		if _, is := next.(*spdy.SpdyRoundTripper); is {
			return next // This transport is for exec, attach and port-forward, which package untrusted handles separately.
		}
		return watchRetry{next: next, away: away}
	})
}

type watchRetry struct {
	next http.RoundTripper
	away *away
}

// WrappedRoundTripper lets client-go find the transport below.
func (w watchRetry) WrappedRoundTripper() http.RoundTripper { return w.next }

// RoundTrip implements http.RoundTripper. A request for a watch has no body.
func (w watchRetry) RoundTrip(req *http.Request) (*http.Response, error) {
	if !isWatch(req) {
		return w.next.RoundTrip(req)
	}
	ctx := req.Context()
	var endTurn func() // nil for an attempt that does not hold the turn.
	for alone := 0; ; {
		resp, err := w.next.RoundTrip(req)
		why := unanswered(resp, err)
		var answered <-chan struct{}
		if ctx.Err() == nil {
			answered = w.away.observe(req, why, endTurn != nil)
		}
		if endTurn != nil {
			endTurn()
		}
		if why == "" || alone == mostAlone || ctx.Err() != nil {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		if endTurn, err = w.away.wait(ctx, answered); err != nil {
			return nil, err
		}
		if endTurn == nil {
			alone++
		}
	}
}

// away is the state shared by the watches that wait for a cluster.
type away struct {
	// turn is full while one watch makes the next attempt on behalf of all.
	turn chan struct{}
	log  logr.Logger

	mu sync.Mutex
	// failed is the number of consecutive failed turns, and at least 1 if another attempt has failed; guarded by mu.
	failed int
	// answered is closed when an attempt is answered after others have failed; guarded by mu.
	answered chan struct{}
}

// observe records the result of an attempt: why is the reason of its failure, "" if it was answered. The returned
// channel is closed when a later attempt is answered.
func (a *away) observe(req *http.Request, why string, turn bool) <-chan struct{} {
	a.mu.Lock()
	before := a.failed
	switch {
	case why != "" && turn:
		a.failed++
	case why != "":
		a.failed = max(1, before)
	case before > 0:
		a.failed = 0
		close(a.answered)
		a.answered = make(chan struct{})
	}
	after, answered := a.failed, a.answered
	a.mu.Unlock()
	switch {
	case before < after && after == failuresUntilLogged:
		a.log.Info("The remote cluster does not answer watch requests, retrying",
			"path", untrusted.Cut(req.URL.Path, mostPath), "reason", untrusted.Text(why))
	case after == 0 && before >= failuresUntilLogged:
		a.log.Info("The remote cluster answers watch requests again")
	}
	return answered
}

// mostPath bounds the length of a path in the log (bytes).
const mostPath = 200

// wait returns when the watch may make its next attempt. Either the watch holds the turn, and endTurn releases it; or
// another watch was answered since this one failed, and endTurn is nil. The error is the context's.
func (a *away) wait(ctx context.Context, answered <-chan struct{}) (endTurn func(), err error) {
	select {
	case <-answered:
		return nil, sleep(ctx, wait.Jitter(spread/2, 1))
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	end := sync.OnceFunc(func() { <-a.turn })
	a.mu.Lock()
	pause := time.NewTimer(backoff(a.failed))
	a.mu.Unlock()
	defer pause.Stop()
	select {
	case <-answered:
		end()
		return nil, sleep(ctx, wait.Jitter(spread/2, 1))
	case <-pause.C:
	case <-ctx.Done():
		end()
		return nil, ctx.Err()
	}
	// An API server or a proxy before it may leave a watch without an answer. The other watches do not wait for it.
	late := time.AfterFunc(lastRetry, end)
	return func() {
		late.Stop()
		end()
	}, nil
}

// sleep waits for the pause. The error is the context's.
func sleep(ctx context.Context, pause time.Duration) error {
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// backoff returns the pause before the next turn after that many failed turns.
func backoff(failed int) time.Duration {
	return wait.Jitter(min(lastRetry, firstRetry<<min(max(0, failed-1), 10))/2, 1)
}

// unanswered returns why a request was not answered by an API server; "" if it was. An invalid certificate counts as an
// answer.
func unanswered(resp *http.Response, err error) string {
	if err != nil {
		var certificate *tls.CertificateVerificationError
		if errors.As(err, &certificate) {
			return ""
		}
		return err.Error()
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Sprint("status ", resp.StatusCode)
	}
	return ""
}
