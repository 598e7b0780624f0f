package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func writeKubeconfig(t *testing.T, server string) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(`
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: "`+server+`", insecure-skip-tls-verify: true}}]
users: [{name: me, user: {token: secret}}]
contexts:
- {name: one, context: {cluster: c, user: me}}
- {name: two, context: {cluster: c, user: me, namespace: shop}}
`), 0o600))
	return path
}

// The flags of kubectl mean what they mean there, and only what is needed is asked for.
func TestConnection(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		assert.Equal(t, "someone", r.Header.Get("Impersonate-User"))
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", `299 - "what the server warns of"`)
		switch {
		case strings.HasSuffix(r.URL.Path, "/namespaces/shop"):
			_, _ = w.Write([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop"}}`))
		case strings.HasSuffix(r.URL.Path, "/pods/a"):
			_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop"},"spec":{"nodeName":"liqo-broker"}}`))
		default:
			_, _ = w.Write([]byte(`{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`))
		}
	}))
	defer server.Close()
	kubeconfig := writeKubeconfig(t, server.URL)

	for line, want := range map[string][]string{
		"get providers": {"GET /apis/brokering.liqo.io/v1alpha1/providerclusters"},
		"get placements --context=two": {
			"GET /api/v1/namespaces/shop", "GET /api/v1/namespaces/shop/pods",
		},
		"get placements -A": {"GET /api/v1/namespaces", "GET /api/v1/pods"},
		"explain -n shop a": {
			"GET /api/v1/namespaces/shop/pods/a", "GET /api/v1/namespaces/shop",
			"GET /apis/brokering.liqo.io/v1alpha1/placementpolicies", "GET /apis/brokering.liqo.io/v1alpha1/providerclusters",
			"GET /apis/offloading.liqo.io/v1beta1/virtualnodes", "GET /apis/offloading.liqo.io/v1beta1/namespacemaps", "GET /api/v1/namespaces",
			"GET /api/v1/pods",
		},
	} {
		t.Run(line, func(t *testing.T) {
			asked = nil
			var stdout, stderr bytes.Buffer
			args := append(strings.Fields(line), "--kubeconfig="+kubeconfig, "--as=someone")
			require.NoError(t, runAs(t.Context(), pluginName, args, &stdout, &stderr), stderr.String())
			require.Equal(t, want, asked)
			require.Equal(t, 1, strings.Count(stderr.String(), "what the server warns of"), stderr.String())
		})
	}
}

func TestConnectionsThatFail(t *testing.T) {
	t.Setenv("KUBECONFIG", "/does/not/exist")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	silent := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-silent:
		}
	}))
	defer hangs.Close()
	defer close(silent)
	unknown := httptest.NewServer(http.NotFoundHandler())
	defer unknown.Close()
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"no kubeconfig":          {nil, "error: no kubeconfig: name that of the broker's cluster by --kubeconfig or the environment variable KUBECONFIG"},
		"no such kubeconfig":     {[]string{"--kubeconfig=/no/such"}, "error: connecting to the broker's cluster (--kubeconfig): stat /no/such: "},
		"no such context":        {[]string{"--kubeconfig=" + writeKubeconfig(t, hangs.URL), "--context=no"}, `"no"`},
		"nobody listens":         {[]string{"--server=http://127.0.0.1:1"}, "connection refused"},
		"nobody answers":         {[]string{"--server=" + hangs.URL, "--request-timeout=50ms"}, "error: no answer in time (--request-timeout)"},
		"the CRDs are not there": {[]string{"--server=" + unknown.URL}, "are the CRDs of the broker installed there?"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			began := time.Now()
			code := exitCode(runAs(t.Context(), pluginName, append([]string{"get", "providers"}, tc.args...), &stdout, &stderr), &stderr)
			require.Equal(t, 1, code)
			require.Contains(t, stderr.String(), tc.says)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
			require.Empty(t, stdout.String())
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
}

// What is watched is asked for as the API server expects, and a stream that ends is taken up where it was.
func TestWatchOverHTTP(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var mu sync.Mutex
	var watched []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		const provider = `{"kind":"ProviderCluster","apiVersion":"brokering.liqo.io/v1alpha1","metadata":{"name":"NAME","labels":{"a":"b"},"resourceVersion":"VERSION"}}`
		named := func(name, version string) string {
			return strings.NewReplacer("NAME", name, "VERSION", version).Replace(provider)
		}
		q := r.URL.Query()
		if q.Get("watch") == "" {
			_, _ = w.Write([]byte(`{"kind":"ProviderClusterList","apiVersion":"brokering.liqo.io/v1alpha1",` +
				`"metadata":{"resourceVersion":"7"},"items":[` + named("p1", "5") + `]}`))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		assert.NotEmpty(t, q.Get("timeoutSeconds"))
		assert.Equal(t, "a=b", q.Get("labelSelector"))
		switch watched = append(watched, q.Get("resourceVersion")); len(watched) {
		case 1:
			_, _ = w.Write([]byte(`{"type":"ADDED","object":` + named("p2", "8") + `}` + "\n"))
		case 2:
			_, _ = w.Write([]byte(`{"type":"DELETED","object":` + named("p1", "9") + `}` + "\n"))
		default:
			interrupt()
		}
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	err := runAs(ctx, pluginName, []string{
		"get", "providers", "-w", "-l", "a=b", "--no-headers", "--kubeconfig=" + writeKubeconfig(t, server.URL),
	}, &stdout, &stderr)
	require.NoError(t, err, "Ctrl-C is how a watch ends")
	require.Equal(t, []string{"7", "8", "9"}, watched)
	var shown []string
	for line := range strings.Lines(stdout.String()) {
		shown = append(shown, strings.Join(strings.Fields(line)[:2], " "))
	}
	require.Equal(t, []string{"p1 Unknown", "p2 Unknown", "p1 Gone"}, shown)
	require.Empty(t, stderr.String())
}
