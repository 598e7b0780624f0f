// Package server answers the requests to the catalog: the handlers of its HTTP API, and the OpenAPI document that
// describes them. Package middleware runs before the handlers; package view has their data.
package server

import (
	"context"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"github.com/klauspost/compress/gzhttp"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/toggle"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
)

// Access has the permissions of anonymous callers.
type Access struct {
	// ReadAuth hides the list of providers from them.
	ReadAuth bool
	// AnonymousToggle lets them enable and disable providers by /api/toggle.
	AnonymousToggle bool
}

// Config has the dependencies of a Server.
type Config struct {
	Log logr.Logger
	// Version is this program's version, Node the broker's node.
	Version, Node string
	Access        Access
	Clock         clock.Clock

	View    *view.View
	Explain *explain.Explainer
	// Live writes to the API server.
	Live client.Client

	Identifier *caller.Identifier
	Allowances *caller.Allowances
	Rights     *caller.Rights
	Metrics    *middleware.Metrics
}

type changes interface {
	Next(ctx context.Context) ([]view.Change, error)
	Close()
}

// Server answers requests.
type Server struct {
	Config
	subscribe func(scope view.Scope, consumer string) changes
	origins   *http.CrossOriginProtection
	guard     *middleware.Guard
	mux       *http.ServeMux
	texts     sync.Pool                    // The *bytes.Buffers of streams that write.
	routes    map[string]*middleware.Route // By pattern of the mux.
}

// New returns a Server.
func New(cfg Config) *Server {
	origins := http.NewCrossOriginProtection()
	return &Server{
		Config: cfg, origins: origins,
		subscribe: func(scope view.Scope, consumer string) changes { return cfg.View.Subscribe(scope, consumer) },
		guard: &middleware.Guard{
			Log: cfg.Log, Clock: cfg.Clock, Synced: cfg.View.Synced, Identifier: cfg.Identifier,
			Allowances: cfg.Allowances, Origins: origins, Metrics: cfg.Metrics,
		},
	}
}

// Handler answers all requests: the API below /api, and the dashboard.
func (s *Server) Handler(dashboard http.Handler) (http.Handler, error) {
	if err := s.route(); err != nil {
		return nil, err
	}
	compress, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(1), gzhttp.ContentTypes([]string{
		"application/json", "application/problem+json", "application/openapi+json",
	}))
	if err != nil {
		return nil, err
	}
	// A compressor needs 0.8 MB: it must not wait for the client.
	answers := s.guard.Filled(middleware.Buffered(compress(middleware.Conditional(http.HandlerFunc(s.answer)))))
	streams := s.guard.Filled(s.mux)
	guarded := s.guard.Guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Authorization")
		if middleware.RouteOf(r.Context()).Stream {
			streams.ServeHTTP(w, r)
			return
		}
		answers.ServeHTTP(w, r)
	}))
	files := s.guard.Files(dashboard)
	// The time that Bounded waits for the client does not count as time of the answer.
	return middleware.Secured(s.guard.Bounded(s.guard.Observed(s.routeOf, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAPI(r) {
			guarded.ServeHTTP(w, r)
			return
		}
		files.ServeHTTP(w, r)
	})))), nil
}

// Plain answers requests without TLS, by next, which is the Handler.
func (s *Server) Plain(next http.Handler) http.Handler {
	return middleware.Plain(next, func(r *http.Request) bool { return s.routeOf(r).Path == toggle.Path }, isAPI)
}

// answer is the mux, with problem documents where it has no route.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	handler, pattern := s.mux.Handler(r)
	if pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	// The mux answers 405 if there is a route with another method.
	dropped := &droppedBody{header: http.Header{}}
	handler.ServeHTTP(dropped, r)
	if dropped.status != http.StatusMethodNotAllowed {
		problem.New(http.StatusNotFound, "path not found: see /api/v1/openapi.json").Write(w)
		return
	}
	problem.MethodNotAllowed(dropped.header.Get("Allow")).Write(w)
}

// droppedBody is an answer of which only the status and the headers are read.
type droppedBody struct {
	header http.Header
	status int
}

func (d *droppedBody) Header() http.Header { return d.header }

func (d *droppedBody) WriteHeader(status int) { d.status = status }

func (d *droppedBody) Write(data []byte) (int, error) { return len(data), nil }
