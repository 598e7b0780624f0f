package server

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
)

// bodyTimeout is how long the body of a request may take to arrive.
const bodyTimeout = 10 * time.Second

// answer is the result of a handler: a body, and its Cache-Control.
type answer[T any] struct {
	CacheControl string `header:"Cache-Control"`
	Body         T
}

// private is an answer that no cache stores, because it names pods, consumers or policies.
func private[T any](body T) *answer[T] { return &answer[T]{CacheControl: "no-store", Body: body} }

// privately is private for the results of a call.
func privately[T any](body T, err error) (*answer[T], error) {
	if err != nil {
		return nil, err
	}
	return private(body), nil
}

// shared is an answer that caches may store and validate by its ETag; shared caches too, if the caller is anonymous.
func shared[T any](ctx context.Context, body T) *answer[T] {
	if middleware.CallerOf(ctx).Known() {
		return &answer[T]{CacheControl: "private, no-cache", Body: body}
	}
	return &answer[T]{CacheControl: "no-cache", Body: body}
}

// intOrString has the schema of an intstr.IntOrString, whose Go fields differ from its JSON.
type intOrString struct{}

func (intOrString) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeInteger}, {Type: huma.TypeString}}}
}

func documentConfig(version string) huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	for _, t := range []reflect.Type{reflect.TypeFor[resource.Quantity](), reflect.TypeFor[metav1.Duration]()} {
		schemas.RegisterTypeAlias(t, reflect.TypeFor[string]())
	}
	schemas.RegisterTypeAlias(reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[intOrString]())
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

// schemaName distinguishes types of the same name: the types of a PlacementPolicy get it as their prefix.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if strings.HasSuffix(t.PkgPath(), "/api/v1alpha1") && !strings.HasPrefix(name, "Placement") && name != "Resources" {
		return "Policy" + name
	}
	return strings.TrimSuffix(name, "Model")
}

// The callers of an operation, in the document.
var (
	byAnybody = []map[string][]string{{}, {"token": {}}, {"certificate": {}}}
	byKnown   = []map[string][]string{{"token": {}}, {"certificate": {}}}
)

// operation is an operation of the document. Every operation may also be rejected for its rate or URL, or because the
// catalog is starting.
func operation(id, method, path, summary string, security []map[string][]string, errors ...int) huma.Operation {
	errors = append(errors, http.StatusUnauthorized, http.StatusRequestURITooLong, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable)
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, Security: security, Errors: errors,
		MaxBodyBytes: middleware.MaxBody, BodyReadTimeout: bodyTimeout,
	}
}

// routeDocument serves the document, once everything is in it.
func (s *Server) routeDocument(document *huma.OpenAPI) error {
	for _, schema := range document.Components.Schemas.Map() {
		for _, property := range schema.Properties {
			if property.Type == huma.TypeArray {
				property.Nullable = false // Handlers return no null lists.
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
		_, _ = w.Write(text) // The writer buffers it.
	})
	return nil
}

// responses are the responses of an operation with a handler of its own: 200, and its errors.
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

// register adds an operation. The errors of its handler become problem documents.
func register[I, O any](s *Server, document huma.API, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	huma.Register(document, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, problem.Of(s.Log, err)
		}
		return out, nil
	})
}

// PageInput is the page of a list.
type PageInput struct {
	Limit    int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"The largest number of items"`
	Continue string `query:"continue" maxLength:"1024" doc:"The continue token of the previous page; absent for the first page"`
}

// ConsumerInput is the consumer on whose behalf a caller asks.
type ConsumerInput struct {
	Consumer string `query:"consumer" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" doc:"The id of the consumer to act for; by default the caller's own consumer"`
}

// ProviderPath names a provider.
type ProviderPath struct {
	ID string `path:"id" maxLength:"63" doc:"The id of the provider cluster"`
}
