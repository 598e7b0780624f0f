// Package middleware has the steps before the handler of every request to the catalog: headers for browsers, metrics,
// limits, and the identification of the caller; and the step after it: the ETag of the answer.
package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
)

const (
	// MaxBody bounds the body of a request, in bytes.
	MaxBody = 64 << 10
	// MaxURL bounds the first line of a request, in bytes.
	MaxURL = 4 << 10
	// requestTimeout bounds the work on a request.
	requestTimeout = 15 * time.Second
)

// Guard has the handlers that run before others.
type Guard struct {
	Log   logr.Logger
	Clock clock.Clock
	// Synced reports whether the caches have synced, so that requests can be answered.
	Synced     func() bool
	Identifier *caller.Identifier
	Allowances *caller.Allowances
	Origins    *http.CrossOriginProtection
	Metrics    *Metrics
}

// Route is the data of a route that a Guard needs.
type Route struct {
	// Path is its template; "" if there is none.
	Path string
	// Parameters are the query parameters. AnyParameter means that others are ignored, and that faults are 400.
	Parameters   sets.Set[string]
	AnyParameter bool
	// Stream means that the answer continues until the client disconnects.
	Stream bool
	// Check rejects a request, and may change the caller that the request counts for; nil checks nothing.
	Check func(r *http.Request, who *caller.Caller) *problem.Problem
	// Hint is added to the answer to a caller that is not identified; nil adds nothing.
	Hint func(r *http.Request) string
}

type (
	routeKey  struct{}
	callerKey struct{}
	endKey    struct{}
)

// RouteOf returns the route of a request that passed Observed.
func RouteOf(ctx context.Context) *Route {
	route, _ := ctx.Value(routeKey{}).(*Route)
	return cmp.Or(route, &Route{})
}

// CallerOf returns the caller of a request that passed Guarded.
func CallerOf(ctx context.Context) *caller.Caller {
	who, _ := ctx.Value(callerKey{}).(*caller.Caller)
	return cmp.Or(who, &caller.Caller{})
}

// Observed measures every request, and turns a panic into an answer and a log line.
func (g *Guard) Observed(routeOf func(*http.Request) *Route, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, answer, route := g.Clock.Now(), &recorder{ResponseWriter: w}, routeOf(r)
		defer func() {
			cause := recover()
			if cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // It is that value.
				g.Log.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic in a request", "method", r.Method, "route", route.Path,
					"stack", string(debug.Stack()))
				if answer.status == 0 {
					problem.New(http.StatusInternalServerError, "internal error: see the catalog's log").Write(answer)
				}
			}
			g.Metrics.observe(route.Path, r.Method, answer.status, g.Clock.Since(begin))
			if cause == http.ErrAbortHandler { //nolint:errorlint // It is that value.
				panic(cause)
			}
		}()
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), routeKey{}, route)))
	})
}

// Refuse answers with a problem, and counts it.
func (g *Guard) Refuse(w http.ResponseWriter, reason string, p *problem.Problem) {
	g.Metrics.refusals.WithLabelValues(reason).Inc()
	p.Write(w)
}

// Bounded limits the number of open requests. A client that does not read its answers keeps them open.
func (g *Guard) Bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended, ok := g.Allowances.Begin(caller.Host(r))
		if !ok {
			g.Metrics.refusals.WithLabelValues("requests").Inc()
			// Without a body, which would wait for the client over HTTP/2.
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		defer ended()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), endKey{}, ended)))
		if r.ProtoMajor == 2 {
			// The server keeps the end of an answer until its client can receive it.
			_ = http.NewResponseController(w).Flush() // A client that has disconnected needs no answer.
		}
	})
}

// Release stops counting a request that passed Bounded.
func Release(ctx context.Context) {
	if ended, ok := ctx.Value(endKey{}).(func()); ok {
		ended()
	}
}

// Guarded passes requests to the API that are within the limits, are not made by a page of another origin, and whose
// caller has an allowance left. It bounds the time of all requests except streams.
func (g *Guard) Guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := RouteOf(r.Context())
		w.Header().Set("Cache-Control", "no-store")
		if len(r.RequestURI) > MaxURL {
			g.Refuse(w, "url", problem.New(http.StatusRequestURITooLong,
				fmt.Sprintf("use a URL of at most %d bytes", MaxURL)))
			return
		}
		if err := g.Origins.Check(r); err != nil {
			g.Refuse(w, "cross_origin", problem.New(http.StatusForbidden, "cross-origin writes are not allowed"))
			return
		}
		who, err := g.Identifier.Identify(r)
		if err != nil {
			g.refuseUnidentified(w, r, route, err)
			return
		}
		if p := checkQuery(r, route); p != nil {
			g.Refuse(w, "query", p)
			return
		}
		if route.Check != nil {
			if p := route.Check(r, &who); p != nil {
				g.Refuse(w, "toggle", p)
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody+1)
		ctx := context.WithValue(r.Context(), callerKey{}, &who)
		if !route.Stream {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, requestTimeout)
			defer cancel()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (g *Guard) refuseUnidentified(w http.ResponseWriter, r *http.Request, route *Route, err error) {
	reason := "unavailable"
	var limit *caller.LimitError
	switch {
	case errors.Is(err, caller.ErrInvalidToken):
		reason = "token"
	case errors.As(err, &limit):
		reason = "rate"
	}
	p := problem.Of(g.Log, err)
	if route.Hint != nil && p.Status == http.StatusUnauthorized {
		p.Detail += "; " + route.Hint(r)
	}
	g.Refuse(w, reason, p)
}

// Files passes requests for files of the dashboard while their host has an allowance left. Browsers load them without a
// token.
func (g *Guard) Files(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait := g.Allowances.TakeFile(caller.Host(r)); wait > 0 {
			g.Refuse(w, "rate", problem.Of(g.Log, &caller.LimitError{RetryAfter: wait}))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkQuery rejects parameters that are given twice, of which one might be checked and the other one used, and
// parameters that a route does not have.
func checkQuery(r *http.Request, route *Route) *problem.Problem {
	p := problem.InvalidQuery()
	if route.AnyParameter {
		p = problem.New(http.StatusBadRequest, p.Detail)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		p.Errors = append(p.Errors, problem.Fault("query", "must be URL-encoded"))
	}
	for name, values := range query {
		switch {
		case len(values) > 1:
			p.Errors = append(p.Errors, problem.Fault("query."+name, "must not be repeated"))
		case !route.AnyParameter && route.Path != "" && !route.Parameters.Has(name):
			p.Errors = append(p.Errors, problem.Fault("query."+name, "unknown parameter"))
		}
	}
	if len(p.Errors) == 0 {
		return nil
	}
	return p
}

// Filled rejects requests until all caches have synced.
func (g *Guard) Filled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.Synced() {
			g.Refuse(w, "not_ready", problem.New(http.StatusServiceUnavailable,
				"the catalog is starting: its caches are not synced yet").RetryAfter(time.Second))
			return
		}
		next.ServeHTTP(w, r)
	})
}
