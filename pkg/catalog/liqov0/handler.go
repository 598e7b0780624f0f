// Package liqov0 is the catalog of a cluster with Liqo v0.x, where there is no broker: its ForeignClusters at
// /api/clusters, and /api/toggle, which cordons and uncordons the virtual nodes of a cluster.
package liqov0

import (
	"encoding/json"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/toggle"
)

const clustersPath = "/api/clusters"

// Config has the dependencies of a Catalog.
type Config struct {
	Log   logr.Logger
	Clock clock.Clock
	// ReadAuth hides the clusters from anonymous callers, AnonymousToggle lets them toggle.
	ReadAuth, AnonymousToggle bool
	// Clusters are read from memory.
	Clusters *Clusters
	// Live writes to the API server.
	Live client.Client

	Identifier *caller.Identifier
	Allowances *caller.Allowances
	Rights     *caller.Rights
	Metrics    *middleware.Metrics
}

// Catalog answers requests.
type Catalog struct {
	Config
	guard  *middleware.Guard
	mux    *http.ServeMux
	routes map[string]*middleware.Route // By pattern of the mux.
}

// New returns a Catalog.
func New(cfg Config) *Catalog {
	origins := http.NewCrossOriginProtection()
	c := &Catalog{
		Config: cfg, mux: http.NewServeMux(), routes: map[string]*middleware.Route{},
		guard: &middleware.Guard{
			Log: cfg.Log, Clock: cfg.Clock, Synced: cfg.Clusters.Synced, Identifier: cfg.Identifier,
			Allowances: cfg.Allowances, Origins: origins, Metrics: cfg.Metrics,
		},
	}
	c.route("GET "+clustersPath, &middleware.Route{Path: clustersPath, AnyParameter: true}, c.list)
	c.route("POST "+toggle.Path, &middleware.Route{Path: toggle.Path, AnyParameter: true, Hint: toggle.Hint}, c.toggle)
	c.route("GET "+toggle.Path, &middleware.Route{
		Path: toggle.Path, AnyParameter: true, Hint: toggle.Hint, Check: toggle.ByGet(origins, cfg.AnonymousToggle),
	}, c.toggle)
	return c
}

// route answers requests with the result of answer, in JSON, or with its error.
func (c *Catalog) route(pattern string, route *middleware.Route, answer func(*http.Request) (any, error)) {
	c.routes[pattern] = route
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		body, err := answer(r)
		if err != nil {
			problem.Of(c.Log, err).Write(w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body) // A client that has disconnected needs no answer.
	})
}

// Handler answers all requests.
func (c *Catalog) Handler() http.Handler {
	answers := c.guard.Guarded(c.guard.Filled(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Authorization")
		if c.routeOf(r).Path != "" {
			c.mux.ServeHTTP(w, r)
			return
		}
		problem.New(http.StatusNotFound, "path not found: with Liqo v0.x the catalog serves only GET "+clustersPath+", and POST and GET "+
			toggle.Path).Write(w)
	})))
	return middleware.Secured(c.guard.Bounded(c.guard.Observed(c.routeOf, answers)))
}

// Plain answers requests without TLS, by next, which is the Handler.
func (c *Catalog) Plain(next http.Handler) http.Handler {
	return middleware.Plain(next, func(r *http.Request) bool { return c.routeOf(r).Path == toggle.Path },
		func(*http.Request) bool { return true })
}

func (c *Catalog) routeOf(r *http.Request) *middleware.Route {
	_, pattern := c.mux.Handler(r)
	if route := c.routes[pattern]; route != nil {
		return route
	}
	return &middleware.Route{}
}
