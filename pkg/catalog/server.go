package catalog

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-logr/logr"
	"github.com/klauspost/compress/gzhttp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/federation"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
)

// view is what the handlers need of a federation.View.
type view interface {
	Synced() bool
	Providers(q federation.ProviderQuery) (api.ProviderList, error)
	Provider(id, consumer string) (api.Provider, bool)
	History(id string) (api.History, bool)
	Placements(q federation.PlacementQuery) (api.PlacementList, error)
	Placement(namespace, pod string) (api.Placement, bool)
	Flows(s federation.Scope) api.FlowList
	Policies(s federation.Scope, p federation.Page) (api.PolicyList, error)
	ForeignClusters() []liqov1beta1.ForeignCluster
	HasNamespace(name string) bool
	ConsumerOfNamespace(namespace string) string
	caller.Tenants
}

// changes is what a stream needs of a federation.Subscription.
type changes interface {
	Next(ctx context.Context) ([]federation.Change, error)
	Close()
}

// explainer is what the handlers need of an explain.Explainer.
type explainer interface {
	Pod(ctx context.Context, name types.NamespacedName) (*explain.Explanation, error)
	Suppose(ctx context.Context, h *explain.Hypothesis) (*explain.Explanation, error)
}

// server answers requests.
type server struct {
	log           logr.Logger
	version, node string
	access        AccessConfig
	clock         clock.Clock

	view      view
	subscribe func(scope federation.Scope, consumer string) changes
	// synced says that the view and the explainer know everything.
	synced  func() bool
	explain explainer
	// live writes, and reads the API itself.
	live client.Client

	identifier *caller.Identifier
	allowances *caller.Allowances
	rights     *caller.Rights
	origins    *http.CrossOriginProtection
	metrics    *metrics

	mux    *http.ServeMux
	routes map[string]route // By pattern of the mux.
}

// route is one of the API.
type route struct {
	// path is its template; "" if there is none.
	path string
	// parameters are those of the query.
	parameters sets.Set[string]
	// stream says that it goes on, ofSeeds that it is as the seeds had it.
	stream, ofSeeds bool
}

// handler answers everything: the API below /api, and the dashboard.
func (s *server) handler(dashboard http.Handler) (http.Handler, error) {
	if err := s.route(); err != nil {
		return nil, err
	}
	compress, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(1), gzhttp.ContentTypes([]string{
		"application/json", "application/problem+json", "application/openapi+json",
		"text/html", "text/css", "text/javascript", "image/svg+xml",
	}))
	if err != nil {
		return nil, err
	}
	answers := s.filled(compress(conditional(http.HandlerFunc(s.answer))))
	streams := s.filled(s.mux)
	guarded := s.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Authorization")
		if route, _ := r.Context().Value(routeKey{}).(route); route.stream {
			streams.ServeHTTP(w, r)
			return
		}
		answers.ServeHTTP(w, r)
	}))
	pages := s.counted(compress(dashboard))
	return s.secured(s.observed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAPI(r) {
			guarded.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	}))), nil
}

// routeOf finds the route of a request.
func (s *server) routeOf(r *http.Request) route {
	if !isAPI(r) {
		return route{path: "dashboard"}
	}
	_, pattern := s.mux.Handler(r)
	return s.routes[pattern]
}

// answer is the mux, with problem documents where it has no route.
func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	handler, pattern := s.mux.Handler(r)
	if pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	// The mux knows whether there is a route by another method.
	said := &unsaid{header: http.Header{}}
	handler.ServeHTTP(said, r)
	if said.status != http.StatusMethodNotAllowed {
		newProblem(http.StatusNotFound, "there is nothing here: see /api/v1/openapi.json").write(w)
		return
	}
	w.Header().Set("Allow", said.header.Get("Allow"))
	newProblem(http.StatusMethodNotAllowed, "use one of the methods "+said.header.Get("Allow")).write(w)
}

// unsaid is an answer of which only the status and the headers count.
type unsaid struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (u *unsaid) Header() http.Header { return u.header }

// WriteHeader implements http.ResponseWriter.
func (u *unsaid) WriteHeader(status int) { u.status = status }

// Write implements http.ResponseWriter.
func (u *unsaid) Write(data []byte) (int, error) { return len(data), nil }

// learnRoutes remembers the routes that the document has.
func (s *server) learnRoutes(document *huma.OpenAPI) {
	s.routes = map[string]route{}
	for path, item := range document.Paths {
		for method, op := range map[string]*huma.Operation{
			http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put,
		} {
			if op == nil {
				continue
			}
			known := route{
				path: path, parameters: sets.New[string](),
				stream: path == eventsPath, ofSeeds: !strings.HasPrefix(path, base),
			}
			for _, p := range op.Parameters {
				if p.In == "query" {
					known.parameters.Insert(p.Name)
				}
			}
			s.routes[method+" "+path] = known
		}
	}
}
