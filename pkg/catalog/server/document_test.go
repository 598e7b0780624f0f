package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
)

const documentFile = "../../../docs/openapi.json"

// document is the OpenAPI document of a catalog that runs.
type document struct {
	t        *testing.T
	text     any
	compiler *jsonschema.Compiler
}

func documentOf(t *testing.T, c *catalogUnderTest) *document {
	t.Helper()
	got := c.do(call{path: documentPath})
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "application/openapi+json", got.header.Get("Content-Type"))
	text, err := jsonschema.UnmarshalJSON(strings.NewReader(got.body))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource("document.json", text))
	return &document{t: t, text: text, compiler: compiler}
}

// at descends the document; it returns nil if the path does not exist.
func (d *document) at(path ...string) any {
	here := d.text
	for _, key := range path {
		m, _ := here.(map[string]any)
		here = m[key]
	}
	return here
}

// check returns an error unless the document describes the answer of a route.
func (d *document) check(method, template string, got *reply) error {
	media, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	if method == "" {
		method = http.MethodGet
	}
	path := []string{"paths", template, strings.ToLower(method), "responses", fmt.Sprint(got.status)}
	if d.at(path...) == nil {
		return fmt.Errorf("%s %s: there is no response %d", method, template, got.status)
	}
	path = append(path, "content", media, "schema")
	if d.at(path...) == nil {
		return fmt.Errorf("%s %s: response %d is no %s", method, template, got.status, media)
	}
	for i := range path {
		path[i] = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "+", "%2B").Replace(path[i])
	}
	schema, err := d.compiler.Compile("document.json#/" + strings.Join(path, "/"))
	if err != nil {
		return err
	}
	if media == "text/event-stream" {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(got.body))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func TestTheDocumentIsTheOneInDocs(t *testing.T) {
	var have bytes.Buffer
	require.NoError(t, json.Indent(&have, []byte(start(t).do(call{path: documentPath}).body), "", "  "))
	have.WriteByte('\n')
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(documentFile, have.Bytes(), 0o600))
	}
	want, err := os.ReadFile(documentFile)
	require.NoError(t, err)
	require.Equal(t, string(want), have.String(), "UPDATE=1 go test writes it anew")
}

// The answers to all requests of the tables of rights and errors match the document.
func TestAnswersMatchTheDocument(t *testing.T) {
	c := start(t)
	d := documentOf(t, c)
	checked := map[string]bool{}
	for _, tc := range []struct{ method, template, path, body string }{
		{"GET", "/api/v1/me", "/api/v1/me", ""},
		{"GET", "/api/v1/me", "/api/v1/me?consumer=c1", ""},
		{"GET", "/api/v1/providers", "/api/v1/providers", ""},
		{"GET", "/api/v1/providers", "/api/v1/providers?limit=0", ""},
		{"GET", "/api/v1/providers", "/api/v1/providers?consumer=c1", ""},
		{"GET", "/api/v1/providers/{id}", "/api/v1/providers/p1", ""},
		{"GET", "/api/v1/providers/{id}", "/api/v1/providers/px", ""},
		{"GET", "/api/v1/providers/{id}/history", "/api/v1/providers/p1/history", ""},
		{"GET", "/api/v1/providers/{id}/history", "/api/v1/providers/px/history", ""},
		{"GET", "/api/v1/placements", "/api/v1/placements", ""},
		{"GET", "/api/v1/placements", "/api/v1/placements?phase=x", ""},
		{"GET", "/api/v1/flows", "/api/v1/flows", ""},
		{"GET", "/api/v1/flows", "/api/v1/flows?x=y", ""},
		{"GET", "/api/v1/policies", "/api/v1/policies", ""},
		{"GET", "/api/v1/explain", "/api/v1/explain?namespace=web-c1&pod=pod-of-c1", ""},
		{"GET", "/api/v1/explain", "/api/v1/explain", ""},
		{
			"POST", "/api/v1/explain", "/api/v1/explain",
			`{"namespace":"web-c1","requests":{"cpu":"1"},"policy":{"weights":[{"name":"price","weight":1}]}}`,
		},
		{"POST", "/api/v1/explain", "/api/v1/explain", `{"namespace":"web-c1","requests":{"cpu":"x"}}`},
		{"POST", "/api/v1/explain", "/api/v1/explain", `{"namespace":"web-c1","policy":{"weights":[{"name":"x","weight":1}]}}`},
		{"POST", "/api/v1/explain", "/api/v1/explain", `{`},
		{"POST", "/api/v1/explain", "/api/v1/explain", strings.Repeat(" ", middleware.MaxBody) + `{}`},
		{"PUT", "/api/v1/providers/{id}/selected", "/api/v1/providers/p1/selected?consumer=c1", `{"selected":true}`},
		{"PUT", "/api/v1/providers/{id}/selected", "/api/v1/providers/p1/selected", `{"enabled":true}`},
		{"PUT", "/api/v1/providers/{id}/enabled", "/api/v1/providers/p1/enabled", `{"enabled":true}`},
		{"PUT", "/api/v1/providers/{id}/enabled", "/api/v1/providers/p1/enabled", `{"enabled":"yes"}`},
		{"GET", "/api/clusters", "/api/clusters", ""},
		{"POST", "/api/toggle", "/api/toggle?id=p1&enable=true", ""},
		{"GET", "/api/toggle", "/api/toggle?id=p1&enable=true", ""},
		{"GET", "/api/toggle", "/api/toggle?id=p1&enable=yes", ""},
		{"GET", "/api/v1/openapi.json", "/api/v1/openapi.json", ""},
		{"GET", "/api/v1/events", "/api/v1/events?consumer=c9", ""},
	} {
		for _, who := range []string{stranger, consumer, operator, powerless} {
			got := c.do(call{
				method: tc.method, path: tc.path, body: tc.body, token: callers[who].token,
				certificate: callers[who].certificate,
			})
			require.NoError(t, d.check(tc.method, tc.template, got), "%s %s by %s: %d %s", tc.method, tc.path, who, got.status, got.body)
			checked[tc.method+" "+tc.template] = true
		}
	}
	for pattern := range c.server.routes {
		require.True(t, checked[pattern], "%s is in the document, but not checked", pattern)
	}
}

// templateOf is the path of a call in the document; "" if it has none.
func (c *catalogUnderTest) templateOf(in call) string {
	method := in.method
	if method == "" {
		method = http.MethodGet
	}
	return c.server.routeOf(httptest.NewRequest(method, in.path, http.NoBody)).Path
}

// Every operation may be rejected before its handler runs.
func TestRefusalsMatchTheDocument(t *testing.T) {
	whole := start(t)
	d := documentOf(t, whole)
	exhausted := start(t, func(c *catalogUnderTest) {
		c.server.Allowances = caller.NewAllowances(caller.Limits{PerSecond: 1e-9, Burst: 1}, nil, clock.RealClock{})
	})
	exhausted.do(call{path: documentPath, token: "operator"})
	for name, tc := range map[string]struct {
		of     *catalogUnderTest
		token  string
		query  string
		status int
	}{
		"too early": {
			of: start(t, func(c *catalogUnderTest) { c.unsynced = true }), token: "operator", status: http.StatusServiceUnavailable,
		},
		"one too many": {
			of: exhausted, token: "operator", status: http.StatusTooManyRequests,
		},
		"by an invalid token": {of: whole, token: "forged", status: http.StatusUnauthorized},
		"too long":            {of: whole, query: "?q=" + strings.Repeat("x", middleware.MaxURL), status: http.StatusRequestURITooLong},
		"with a parameter, twice": {
			of: whole, token: "operator", query: "?consumer=c1&consumer=c2", status: http.StatusUnprocessableEntity,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for pattern, route := range whole.server.routes {
				method, path, _ := strings.Cut(pattern, " ")
				status := tc.status
				if route.AnyParameter && status == http.StatusUnprocessableEntity {
					status = http.StatusBadRequest
				}
				got := tc.of.do(call{method: method, path: strings.ReplaceAll(path, "{id}", "p1") + tc.query, token: tc.token})
				require.Equal(t, status, got.status, "%s: %s", pattern, got.body)
				require.NoError(t, d.check(method, route.Path, got), pattern)
			}
		})
	}
}

// The commands of docs/catalog.md grant users exactly the required right.
func TestPeopleAreGivenTheRightThatIsAskedFor(t *testing.T) {
	text, err := os.ReadFile("../../../docs/catalog.md")
	require.NoError(t, err)
	var given []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "kubectl create role people ") {
			given = append(given, strings.Fields(line)[4:]...)
		}
		require.False(t, strings.HasPrefix(line, "kubectl") && strings.Contains(line, "liqo-remote-controlplane"), line)
	}
	c := start(t)
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/v1/policies?consumer=c1", certificate: "c1/liqo.io"}).status)
	asked := c.kube.Actions()[0].(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).Spec.ResourceAttributes
	require.Equal(t, "liqo-tenant-c1", asked.Namespace)
	require.Equal(t, []string{"-n", "liqo-tenant-<ID>", "--verb=" + asked.Verb, "--resource=" + asked.Resource + "." + asked.Group}, given)
}
