package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// answering answers with its name, the method and the path, so that a test sees which server got a request.
func answering(t *testing.T, name string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/runningpods" { // As virtual-kubelet's router does.
			http.Redirect(w, r, "/runningpods/", http.StatusMovedPermanently)
			return
		}
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"metadata": {"name": "made"}}`)
			return
		}
		_, _ = io.WriteString(w, name+" "+r.URL.RequestURI())
	}))
	t.Cleanup(server.Close)
	return server
}

// proxied serves the API server and the kubelet of node as a suite sees them. made is called with the created
// namespaces.
func proxied(t *testing.T, made func(context.Context, string) error) string {
	kubelet := answering(t, "kubelet")
	proxy, err := api{
		server: answering(t, "server").URL, serverTransport: http.DefaultTransport, kubeletTransport: http.DefaultTransport,
		kubelet: func(_ context.Context, node string) (string, error) {
			return strings.Replace(kubelet.URL, "node", node, 1), nil
		},
		namespace: made,
	}.handler()
	require.NoError(t, err)
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

func TestKubeletsAreAskedThemselves(t *testing.T) {
	url := proxied(t, nil)
	for name, c := range map[string]struct{ path, want string }{
		"an object":                   {"/api/v1/nodes/node?watch=1", "server /api/v1/nodes/node?watch=1"},
		"the proxy of a Node":         {"/api/v1/nodes/node/proxy/runningpods/?a=b", "kubelet /runningpods/?a=b"},
		"a redirection of a kubelet":  {"/api/v1/nodes/node/proxy/runningpods", "kubelet /runningpods/"},
		"the proxy of the Node's Pod": {"/api/v1/namespaces/ns/pods/https:node:10250/proxy/stats/summary", "kubelet /stats/summary"},
		"the proxy of another Pod": {
			"/api/v1/namespaces/ns/pods/https:web:8080/proxy/", "server /api/v1/namespaces/ns/pods/https:web:8080/proxy/",
		},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := http.Get(url + c.path)
			require.NoError(t, err)
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, c.want, string(body))
		})
	}
}

func TestNamespacesAreOffloadedBeforeTheyAreAnswered(t *testing.T) {
	var made []string
	url := proxied(t, func(_ context.Context, name string) error { made = append(made, name); return nil })
	for _, path := range []string{"/api/v1/namespaces", "/api/v1/namespaces/made/pods"} {
		response, err := http.Post(url+path, "application/json", strings.NewReader("{}"))
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusCreated, response.StatusCode)
		require.JSONEq(t, `{"metadata": {"name": "made"}}`, string(body))
	}
	require.Equal(t, []string{"made"}, made)
}
