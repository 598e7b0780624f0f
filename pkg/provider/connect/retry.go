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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
)

const (
	// firstRetry and lastRetry are the least and the most time between two attempts to reach a cluster that is away.
	firstRetry, lastRetry = time.Second, 5 * time.Second
	// failuresUntilLogged is how many attempts fail until that is logged.
	failuresUntilLogged = 3
)

// RetryWatches has the clients made of the config watch again within seconds when the cluster answers again. client-go's informers
// wait longer after each attempt that fails, up to 60 s (backoffManager of cache.Reflector), and cannot be told that the cluster is
// back. So a request for a watch that gets no answer, or that of a gateway without a server, is sent again here until it is
// answered or its context ends. All clients share one backoff: there is one attempt at a time, however many watches wait.
func RetryWatches(config *rest.Config, log logr.Logger) {
	away := &away{turn: make(chan int, 1), log: log}
	away.turn <- 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return watchRetry{next: next, away: away} })
}

type watchRetry struct {
	next http.RoundTripper
	away *away
}

// WrappedRoundTripper lets client-go find the transport below.
func (w watchRetry) WrappedRoundTripper() http.RoundTripper { return w.next }

// RoundTrip implements http.RoundTripper. A request for a watch has no body.
func (w watchRetry) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if !isWatch(req) {
		return resp, err
	}
	for why := unanswered(resp, err); why != ""; why = unanswered(resp, err) {
		done, waited := w.away.wait(req.Context())
		if !waited {
			break
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		resp, err = w.next.RoundTrip(req)
		done(unanswered(resp, err))
	}
	return resp, err
}

// away is shared by the watches that wait for a cluster.
type away struct {
	// turn holds how many attempts have failed in a row. The watch that takes it makes the next attempt.
	turn chan int
	log  logr.Logger
}

// wait returns when the next attempt may be made, and what to call with why it failed, "" if it did not; false if ctx has ended.
func (a *away) wait(ctx context.Context) (done func(why string), waited bool) {
	var failed int
	select {
	case failed = <-a.turn:
	case <-ctx.Done():
		return nil, false
	}
	select {
	case <-time.After(backoff(failed)):
	case <-ctx.Done():
		a.turn <- failed
		return nil, false
	}
	var once sync.Once
	end := func(why string) {
		once.Do(func() { a.turn <- a.count(failed, why) })
	}
	// An API server, or what stands before it, may keep a watch without an answer. The others do not wait for that one.
	late := time.AfterFunc(lastRetry, func() { end("no answer") })
	return func(why string) {
		late.Stop()
		end(why)
	}, true
}

// count returns how many attempts have failed in a row after one more, which failed if there is a reason.
func (a *away) count(failed int, why string) int {
	switch {
	case why == "" && failed >= failuresUntilLogged:
		a.log.Info("The remote cluster answers requests for watches again")
		return 0
	case why == "":
		return 0
	case failed+1 == failuresUntilLogged:
		a.log.Info("The remote cluster does not answer requests for watches", "because", distrust.Text(why))
	}
	return failed + 1
}

// backoff returns how long the next attempt waits. The first one does not: another watch may just have been answered.
func backoff(failed int) time.Duration {
	if failed == 0 {
		return 0
	}
	return wait.Jitter(min(lastRetry, firstRetry<<min(failed-1, 10))/2, 1)
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
