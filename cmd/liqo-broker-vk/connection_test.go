package main

import (
	"bytes"
	"io"
	"log"
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

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/plugin"
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

// kubectl's flags have their usual meaning, and only the necessary requests are sent.
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
			"GET /apis/offloading.liqo.io/v1beta1/virtualnodes", "GET /apis/offloading.liqo.io/v1beta1/namespacemaps",
			"GET /api/v1/namespaces", "GET /api/v1/pods",
		},
	} {
		t.Run(line, func(t *testing.T) {
			asked = nil
			var stdout, stderr bytes.Buffer
			args := append(strings.Fields(line), "--kubeconfig="+kubeconfig, "--as=someone")
			require.NoError(t, runAs(t.Context(), plugin.Name, args, &stdout, &stderr), stderr.String())
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
	encrypted := httptest.NewTLSServer(http.NotFoundHandler())
	defer encrypted.Close()
	encrypted.Config.ErrorLog = log.New(io.Discard, "", 0)
	unknown := httptest.NewServer(http.NotFoundHandler())
	defer unknown.Close()
	for name, tc := range map[string]struct {
		args    []string
		message string
	}{
		"no kubeconfig": {nil, "error: no kubeconfig: set --kubeconfig or the environment variable KUBECONFIG to "},
		"no such kubeconfig": {
			[]string{"--kubeconfig=/no/such"},
			"error: connecting to the broker's cluster (--kubeconfig): stat /no/such: ",
		},
		"no such context": {[]string{"--kubeconfig=" + writeKubeconfig(t, hangs.URL), "--context=no"}, `"no"`},
		"no server listens": {
			[]string{"--server=http://127.0.0.1:1"},
			"The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?",
		},
		"no server answers": {
			[]string{"--server=" + hangs.URL, "--request-timeout=50ms"},
			"error: request timed out (--request-timeout): the server " + strings.TrimPrefix(hangs.URL, "http://") + " did not answer",
		},
		"another CA": {
			[]string{"--server=" + encrypted.URL},
			"Unable to connect to the server: tls: failed to verify certificate: x509: ",
		},
		"the CRDs are not there": {[]string{"--server=" + unknown.URL}, "are the CRDs of the broker installed there?"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			began := time.Now()
			code := exitCode(runAs(t.Context(), plugin.Name, append([]string{"get", "providers"}, tc.args...), &stdout, &stderr), &stderr)
			require.Equal(t, 1, code)
			require.Contains(t, stderr.String(), tc.message)
			require.NotContains(t, stderr.String(), "Get \"")
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
			require.Empty(t, stdout.String())
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
}

// drain patches one object and then reads it until the condition is True.
func TestDrainOverHTTP(t *testing.T) {
	var requests []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		const object = `{"kind":"ProviderCluster","apiVersion":"brokering.liqo.io/v1alpha1","metadata":{"name":"p1","uid":"u","generation":2},` +
			`"spec":{"drain":DRAIN},"status":{"conditions":[CONDITION]}}`
		requests = append(requests, r.Method+" "+r.URL.Path)
		drain, condition := "true", ""
		switch len(requests) {
		case 1:
			drain = "false"
		case 3:
			condition = `{"type":"Drained","status":"False","reason":"PodsLeft","message":"1 pod is left","observedGeneration":2}`
		case 4:
			condition = `{"type":"Drained","status":"True","reason":"Empty","observedGeneration":2}`
		}
		_, _ = strings.NewReplacer("DRAIN", drain, "CONDITION", condition).WriteString(w, object)
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	args := []string{"drain", "p1", "--kubeconfig=" + writeKubeconfig(t, server.URL)}
	require.NoError(t, runAs(t.Context(), plugin.Name, args, &stdout, &stderr))
	const path = "/apis/brokering.liqo.io/v1alpha1/providerclusters/p1"
	require.Equal(t, []string{"GET " + path, "PATCH " + path, "GET " + path, "GET " + path}, requests)
	require.Equal(t, "providercluster.brokering.liqo.io/p1 draining\np1: 1 pod is left\n"+
		"providercluster.brokering.liqo.io/p1 drained\n", stdout.String())
	require.Empty(t, stderr.String())
}

// check only reads, and reviews are the only objects that it sends. The server's clock is compared with the local one.
func TestCheckOverHTTP(t *testing.T) {
	asked := map[string]int{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.Method+" "+r.URL.Path]++
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		switch {
		case r.Method == http.MethodPost:
			_, _ = w.Write([]byte(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`))
		case strings.Contains(r.URL.Path, "/customresourcedefinitions/"), strings.HasSuffix(r.URL.Path, "/liqo-broker"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
		default:
			_, _ = w.Write([]byte(`{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`))
		}
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	args := []string{"check", "--kubeconfig=" + writeKubeconfig(t, server.URL)}
	require.ErrorContains(t, runAs(t.Context(), plugin.Name, args, &stdout, &stderr), "checks failed")
	require.Contains(t, stdout.String(), "ahead of the API server's")
	require.Empty(t, stderr.String())
	require.Greater(t, asked["POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"], 10)
	delete(asked, "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
	const crds = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	require.Equal(t, map[string]int{
		"GET /apis/apps/v1/deployments":                                                  2,
		crds + "providerclusters.brokering.liqo.io":                                      1,
		crds + "placementpolicies.brokering.liqo.io":                                     1,
		crds + "consumerclusters.brokering.liqo.io":                                      1,
		"GET /api/v1/nodes/liqo-broker":                                                  1,
		"GET /apis/offloading.liqo.io/v1beta1/virtualnodes":                              1,
		"GET /apis/offloading.liqo.io/v1beta1/vkoptionstemplates":                        1,
		"GET /apis/brokering.liqo.io/v1alpha1/providerclusters":                          1,
		"GET /apis/authentication.liqo.io/v1beta1/identities":                            1,
		"GET /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies":          1,
		"GET /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings":    1,
		"GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/liqo-broker": 1,
	}, asked)
}
