package catalog

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	base         = "/api/v1"
	clustersPath = "/api/clusters"
	togglePath   = "/api/toggle"
	eventsPath   = base + "/events"
	documentPath = base + "/openapi.json"
)

// answer is what a handler gives: a body, and whether others may keep it.
type answer[T any] struct {
	CacheControl string `header:"Cache-Control"`
	Body         T
}

// private is what nobody keeps, because it names pods, consumers or policies.
func private[T any](body T) *answer[T] { return &answer[T]{CacheControl: "no-store", Body: body} }

// shared is what may be kept and asked for again by its tag: by everybody, if strangers see the same.
func shared[T any](ctx context.Context, body T) *answer[T] {
	if callerOf(ctx).Known() {
		return &answer[T]{CacheControl: "private, no-cache", Body: body}
	}
	return &answer[T]{CacheControl: "no-cache", Body: body}
}

// route makes the mux, and the document that describes it.
func (s *server) route() error {
	s.mux = http.NewServeMux()
	document := humago.New(s.mux, documentConfig(s.version))
	s.routeProviders(document)
	s.routePlacements(document)
	s.routeExplanations(document)
	s.routeWrites(document)
	s.routeSeeds(document)
	s.routeEvents(document.OpenAPI())
	return s.routeDocument(document.OpenAPI())
}

func documentConfig(version string) huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	for _, t := range []reflect.Type{reflect.TypeFor[resource.Quantity](), reflect.TypeFor[metav1.Duration]()} {
		schemas.RegisterTypeAlias(t, reflect.TypeFor[string]())
	}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "liqo-broker-vk catalog", Version: version,
				Description: "The federation of a broker of Liqo clusters: its providers, where pods are, and why.",
				License:     &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"},
			},
			Components: &huma.Components{
				Schemas: schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {
						Type: "http", Scheme: "bearer", Description: "A token of the cluster, such as a service account's",
					},
					"certificate": {
						Type:        "mutualTLS",
						Description: "A client certificate of the cluster's CA, such as a consumer's identity",
					},
				},
			},
		},
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
	}
}

// schemaName keeps apart the types of the same name: those of the CRDs are called as what they are part of.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if strings.HasSuffix(t.PkgPath(), "/api/v1alpha1") && !strings.HasPrefix(name, "Placement") {
		return "Policy" + name
	}
	return strings.TrimSuffix(name, "Model")
}

// Who may call an operation, in the document.
var (
	byAnybody = []map[string][]string{{}, {"token": {}}, {"certificate": {}}}
	byKnown   = []map[string][]string{{"token": {}}, {"certificate": {}}}
)

// operation is one of the document. Every one may also be refused for being one too many, or too early, or for its URL.
func operation(id, method, path, summary string, security []map[string][]string, errors ...int) huma.Operation {
	errors = append(errors, http.StatusUnauthorized, http.StatusRequestURITooLong, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable)
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, Security: security, Errors: errors,
		MaxBodyBytes: maxBody, BodyReadTimeout: readTimeout,
	}
}

// routeDocument serves the document, once everything is in it.
func (s *server) routeDocument(document *huma.OpenAPI) error {
	for _, schema := range document.Components.Schemas.Map() {
		for _, property := range schema.Properties {
			if property.Type == huma.TypeArray {
				property.Nullable = false // No list is null here: it is empty, or left out.
			}
		}
	}
	op := operation("getDocument", http.MethodGet, documentPath, "This document", byAnybody,
		http.StatusUnprocessableEntity)
	op.Responses = responses(&op, "application/openapi+json", huma.TypeObject, "OpenAPI 3.1")
	document.AddOperation(&op)
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	s.mux.HandleFunc(http.MethodGet+" "+documentPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(text) // It is kept until it is all there.
	})
	s.learnRoutes(document)
	return nil
}

// responses are those of an operation that has a handler of its own: the good one, and its errors.
func responses(op *huma.Operation, mediaType, schema, description string) map[string]*huma.Response {
	all := map[string]*huma.Response{"200": {
		Description: description,
		Content:     map[string]*huma.MediaType{mediaType: {Schema: &huma.Schema{Type: schema}}},
	}}
	for _, status := range op.Errors {
		all[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status),
			Content: map[string]*huma.MediaType{
				"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/Error"}},
			},
		}
	}
	return all
}

// register adds an operation whose handler's errors become problem documents.
func register[I, O any](s *server, document huma.API, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	huma.Register(document, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, problemOf(s.log, err)
		}
		return out, nil
	})
}

// PageInput is which part of a list is asked for.
type PageInput struct {
	Limit    int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many items at most"`
	Continue string `query:"continue" maxLength:"1024" doc:"That of the page before; absent for the first"`
}

// ConsumerInput is on whose behalf a caller asks.
type ConsumerInput struct {
	Consumer string `query:"consumer" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" doc:"On whose behalf to ask; by default that of the consumer that the caller is"`
}

// ProviderPath names a provider.
type ProviderPath struct {
	ID string `path:"id" maxLength:"63" doc:"The id of the provider cluster"`
}
