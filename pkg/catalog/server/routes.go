package server

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/toggle"
)

const (
	base         = "/api/v1"
	clustersPath = "/api/clusters"
	eventsPath   = base + "/events"
	documentPath = base + "/openapi.json"
)

// route makes the mux, and the document that describes it.
func (s *Server) route() error {
	s.mux = http.NewServeMux()
	document := humago.New(s.mux, documentConfig(s.Version))
	s.routeProviders(document)
	s.routePlacements(document)
	s.routeExplanations(document)
	s.routeWrites(document)
	s.routeLegacy(document)
	s.routeEvents(document.OpenAPI())
	if err := s.routeDocument(document.OpenAPI()); err != nil {
		return err
	}
	s.routes = routesOf(document.OpenAPI())
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		s.routes[method+" "+toggle.Path].Hint = toggle.Hint
	}
	s.routes[http.MethodGet+" "+toggle.Path].Check = toggle.ByGet(s.origins, s.Access.AnonymousToggle)
	return nil
}

// routesOf returns the routes in the document, by pattern of the mux.
func routesOf(document *huma.OpenAPI) map[string]*middleware.Route {
	routes := map[string]*middleware.Route{}
	for path, item := range document.Paths {
		for method, op := range map[string]*huma.Operation{
			http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put,
		} {
			if op == nil {
				continue
			}
			route := &middleware.Route{
				Path: path, Parameters: sets.New[string](),
				Stream: path == eventsPath, AnyParameter: !strings.HasPrefix(path, base),
			}
			for _, p := range op.Parameters {
				if p.In == "query" {
					route.Parameters.Insert(p.Name)
				}
			}
			routes[method+" "+path] = route
		}
	}
	return routes
}

func (s *Server) routeOf(r *http.Request) *middleware.Route {
	if !isAPI(r) {
		return &middleware.Route{Path: "dashboard"}
	}
	_, pattern := s.mux.Handler(r)
	if route := s.routes[pattern]; route != nil {
		return route
	}
	return &middleware.Route{}
}

// isAPI reports whether a request is for the API, rather than for the dashboard.
func isAPI(r *http.Request) bool {
	return r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/")
}
