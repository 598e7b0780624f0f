package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/toggle"
)

// fuzzed is a catalog without a network, and calls it as the operator.
func fuzzed(f *testing.F) func(t *testing.T, r *http.Request) {
	f.Helper()
	c := &catalogUnderTest{view: newObserved(f), log: &lines{}}
	c.kube, c.live = c.apiServer(), clusterWith(f, federation())
	f.Cleanup(c.view.run(append(federation(), policies()...)...))
	limits := caller.Limits{PerSecond: 1e9, Burst: 1e9, Streams: 1, TotalStreams: 1}
	handler, err := New(c.config(nil, limits)).Handler(http.NotFoundHandler())
	require.NoError(f, err)
	return func(t *testing.T, r *http.Request) {
		r.Header.Set("Authorization", "Bearer operator")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError {
			t.Fatalf("%s %s: %s\n%s", r.Method, r.URL, w.Body, c.log)
		}
		if w.Code >= http.StatusBadRequest && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %s: %d is no problem document: %s", r.Method, r.URL, w.Code, w.Body)
		}
		if w.Code == http.StatusOK && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %s: no JSON: %s", r.Method, r.URL, w.Body)
		}
	}
}

func FuzzQuery(f *testing.F) {
	do := fuzzed(f)
	for _, query := range []string{
		"", "limit=1", "limit=-1", "limit=1&limit=2", "%zz", "a;b", "continue=bmV4dA", "consumer=c1&namespace=web-c1&pod=pod-of-c1",
		"id=p1&enable=true", "id=%00&enable=false", "ready=true&enabled=false&region=eu&q=%F0%9F%98%80", "phase=Running&waiting=1",
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, path := range []string{
			"/api/v1/me", "/api/v1/providers", "/api/v1/providers/p1", "/api/v1/placements", "/api/v1/policies", "/api/v1/explain",
			clustersPath, toggle.Path,
		} {
			r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
			r.URL.RawQuery = query
			r.RequestURI = path + "?" + query
			do(t, r)
		}
	})
}

func FuzzBody(f *testing.F) {
	do := fuzzed(f)
	for _, body := range []string{
		"", "{}", "[]", "null", `{"namespace":"web-c1"}`,
		`{"namespace":"web-c1","labels":{"app":"web"},"annotations":{"brokering.liqo.io/filter":"provider.id == 'p1'"}}`,
		`{"namespace":"web-c1","requests":{"cpu":"1","nvidia.com/gpu":"1e3"}}`,
		`{"namespace":"web-c1","requests":{"cpu":"9223372036854775807E"}}`,
		`{"namespace":"web-c1","requests":{"cpu":"1e-2000000000"}}`, `{"namespace":"web-c1","requests":{"cpu":"0e2000000000"}}`,
		`{"namespace":"web-c1","policy":{"filter":"true","score":"1.0","weights":[{"name":"price","weight":1}],"failover":{"after":"5s"}}}`,
		`{"namespace":"web-c1","policy":{"weights":null,"podSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}}`,
		`{"selected":true}`, `{"enabled":1}`,
		`{"namespace":"web-c1","policy":` + strings.Repeat(`{"failover":`, 200) + `{}` + strings.Repeat(`}`, 200) + `}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for path, method := range map[string]string{
			"/api/v1/explain": http.MethodPost, "/api/v1/providers/p1/selected?consumer=c1": http.MethodPut,
			"/api/v1/providers/p1/enabled": http.MethodPut,
		} {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			do(t, r)
		}
	})
}
