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
	// firstRetry and lastRetry bound the pause before an attempt to reach a cluster that is away. Half of it is jitter.
	firstRetry, lastRetry = time.Second, 5 * time.Second
	// spread is how long after the first one that is answered the last one is sent again.
	spread = time.Second
	// failuresUntilLogged is how many attempts fail until that is logged.
	failuresUntilLogged = 3
	// mostAlone is how often a request fails although others are answered, until its error is returned.
	mostAlone = 3
)

// RetryWatches has the clients made of the config watch again within seconds when the cluster answers again. client-go's informers
// wait longer after each attempt that fails, up to 60 s (backoffManager of cache.Reflector), and cannot be told that the cluster is
// back. So a request for a watch that gets no answer, or that of a gateway without a server, is sent again here until it is
// answered, its context ends, or it has failed mostAlone times after others were answered. The watches that wait share one backoff: one
// of them is sent at a time, and when one is answered, all others are.
func RetryWatches(config *rest.Config, log logr.Logger) {
	away := &away{turn: make(chan struct{}, 1), answered: make(chan struct{}), log: log}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		if _, is := next.(*spdy.SpdyRoundTripper); is {
			return next // It is for exec, attach and port-forward, and package untrusted treats it in its own way.
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
	var endTurn func() // nil for an attempt that is no turn.
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

// away is shared by the watches that wait for a cluster.
type away struct {
	// turn is full while a watch makes the next attempt for all.
	turn chan struct{}
	log  logr.Logger

	mu sync.Mutex
	// failed is how many turns have failed in a row, and at least 1 if another attempt has; guarded by mu.
	failed int
	// answered is closed when an attempt is answered after others have failed; guarded by mu.
	answered chan struct{}
}

// observe takes in whether an attempt failed, by its reason, and returns what is closed when a later one is answered.
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
		a.log.Info("A request for a watch is not answered by the remote cluster", "path", untrusted.Cut(req.URL.Path, mostPath), "because", untrusted.Text(why))
	case after == 0 && before >= failuresUntilLogged:
		a.log.Info("Requests for watches are answered again by the remote cluster")
	}
	return answered
}

// mostPath bounds what a log shows of a path (bytes).
const mostPath = 200

// wait returns when the next attempt may be made. It is the turn of this watch, which the function returned ends; or another one was
// answered since this one failed, and there is no function. The error is that of the context.
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
	// An API server, or what stands before it, may keep a watch without an answer. The others do not wait for that one.
	late := time.AfterFunc(lastRetry, end)
	return func() {
		late.Stop()
		end()
	}, nil
}

// sleep returns after that time. The error is that of the context.
func sleep(ctx context.Context, pause time.Duration) error {
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// backoff returns how long the next turn waits after so many have failed.
func backoff(failed int) time.Duration {
	return wait.Jitter(min(lastRetry, firstRetry<<min(max(0, failed-1), 10))/2, 1)
}

// unanswered returns why a request was not answered by an API server; "" if it was. A certificate that is not valid is an answer.
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
