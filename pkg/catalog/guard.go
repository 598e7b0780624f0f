package catalog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
)

// contentPolicy lets the dashboard load what this server serves, and nothing else: no inline script or style either.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secured sets the headers that keep browsers from doing what nobody asked for.
func (s *server) secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(data []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(data)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// observed measures every request, and turns a panic into an answer and a log line.
func (s *server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, answer, route := s.clock.Now(), &recorder{ResponseWriter: w}, s.routeOf(r)
		defer func() {
			cause := recover()
			if cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // It is that value.
				s.log.Error(fmt.Errorf("panic: %v", cause), "A request failed", "method", r.Method, "route", route.path,
					"stack", string(debug.Stack()))
				if answer.status == 0 {
					newProblem(http.StatusInternalServerError, "the catalog failed; its log says why").write(answer)
				}
			}
			s.metrics.observe(route.path, r.Method, answer.status, s.clock.Since(begin))
			if cause == http.ErrAbortHandler { //nolint:errorlint // It is that value.
				panic(cause)
			}
		}()
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), routeKey{}, route)))
	})
}

// refused answers with a problem, and counts it.
func (s *server) refused(w http.ResponseWriter, reason string, p *problem) {
	s.metrics.refusals.WithLabelValues(reason).Inc()
	p.write(w)
}

type (
	routeKey  struct{}
	callerKey struct{}
)

// callerOf is who makes a request that guarded let through.
func callerOf(ctx context.Context) *caller.Caller {
	who, _ := ctx.Value(callerKey{}).(*caller.Caller)
	if who == nil {
		return &caller.Caller{}
	}
	return who
}

// guarded lets through to the API what is no longer than it may be, comes from no foreign page, and from a caller who may
// still ask. It says who that is (callerOf), and bounds the time of all but streams.
func (s *server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, _ := r.Context().Value(routeKey{}).(route)
		w.Header().Set("Cache-Control", "no-store")
		if len(r.RequestURI) > maxURL {
			s.refused(w, "url", newProblem(http.StatusRequestURITooLong,
				fmt.Sprintf("use a URL of at most %d bytes", maxURL)))
			return
		}
		if err := s.origins.Check(r); err != nil {
			s.refused(w, "cross_origin", newProblem(http.StatusForbidden, "a page of another origin may not write here"))
			return
		}
		who, err := s.identifier.Identify(r)
		if err != nil {
			s.unidentified(w, r, route, err)
			return
		}
		if p := checkQuery(r, route); p != nil {
			s.refused(w, "query", p)
			return
		}
		if route.path == togglePath && r.Method != http.MethodPost {
			if p := s.safeToggle(r, &who); p != nil {
				s.refused(w, "toggle", p)
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody+1)
		ctx := context.WithValue(r.Context(), callerKey{}, &who)
		if !route.stream {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, requestTimeout)
			defer cancel()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (s *server) unidentified(w http.ResponseWriter, r *http.Request, route route, err error) {
	reason := "unavailable"
	var limit *caller.LimitError
	switch {
	case errors.Is(err, caller.ErrInvalidToken):
		reason = "token"
	case errors.As(err, &limit):
		reason = "rate"
	}
	p := problemOf(s.log, err)
	if route.path == togglePath && p.Status == http.StatusUnauthorized {
		p.Detail += "; " + rightCall(r.URL.Query())
	}
	s.refused(w, reason, p)
}

// counted lets through to the dashboard who may still ask for files, whoever it is: browsers load them without a token.
func (s *server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait := s.allowances.TakeFile(caller.Host(r)); wait > 0 {
			s.refused(w, "rate", problemOf(s.log, &caller.LimitError{RetryAfter: wait}))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkQuery refuses parameters that are given twice, of which one might be checked and the other one used, and those
// that a route does not know, unless it is one of the seeds', which ignored them.
func checkQuery(r *http.Request, route route) *problem {
	p := invalidQuery()
	if route.ofSeeds {
		p = newProblem(http.StatusBadRequest, p.Detail)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		p.Errors = append(p.Errors, fault("query", "it is not encoded as a query is"))
	}
	for name, values := range query {
		switch {
		case len(values) > 1:
			p.Errors = append(p.Errors, fault("query."+name, "it is given more than once"))
		case !route.ofSeeds && route.path != "" && !route.parameters.Has(name):
			p.Errors = append(p.Errors, fault("query."+name, "there is no such parameter here"))
		}
	}
	if len(p.Errors) == 0 {
		return nil
	}
	return p
}

// filled refuses what cannot be answered yet.
func (s *server) filled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.synced() {
			s.refused(w, "not_ready", newProblem(http.StatusServiceUnavailable,
				"the catalog has just started and does not know the federation yet").retryAfter(time.Second))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isAPI says whether a request is for the API, rather than for the dashboard.
func isAPI(r *http.Request) bool {
	return r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/")
}
