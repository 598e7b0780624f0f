package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	"github.com/liqotech/liqo/pkg/consts"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
)

func TestProvidersHearWhoTheBrokerIs(t *testing.T) {
	heard := map[string]int{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard[r.UserAgent()]++
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	provider := connected(t, server)
	_, err := provider.Probe(t.Context())
	require.Error(t, err)
	err = allShadowPods(t.Context(), provider, func(*ShadowPod) {})
	require.Error(t, err)
	_, err = provider.Metrics.MetricsV1beta1().PodMetricses("ns").List(t.Context(), metav1.ListOptions{})
	require.Error(t, err)
	require.Equal(t, map[string]int{"ours/v1": 3}, heard)
}

// connected returns the connection to a provider whose API server is the server.
func connected(t *testing.T, server *httptest.Server) *Connection {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	home := fake.NewClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "kubeconfig"},
		Data: map[string][]byte{consts.KubeconfigSecretField: []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "` + server.URL + `", certificate-authority-data: ` + base64.StdEncoding.EncodeToString(ca) + `}}]
`)},
	})
	identities := identitymanager.NewCertificateIdentityReader(t.Context(), nil, home, nil, "", nil)
	c := NewConnections(home, identities, "ours/v1")
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p1"}}
	vn.Spec.ClusterID = "p1"
	vn.Spec.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: "kubeconfig"}
	require.NoError(t, c.Refresh(t.Context(), vn, time.Now()))

	return c.Get(PlaceOf(vn))
}

func TestAConnectionFollowsNoRedirect(t *testing.T) {
	asked := false
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer inside.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(inside.URL, http.StatusFound))
	defer server.Close()
	provider := connected(t, server)
	for name, call := range map[string]func() error{
		"probe": func() error { _, err := provider.Probe(t.Context()); return err },
		"Liqo":  func() error { return allShadowPods(t.Context(), provider, func(*ShadowPod) {}) },
		"leaving": func() error {
			_, err := provider.Forwarded(t.Context(), "p1", "ns", []string{"pod"})
			return err
		},
		"metrics": func() error {
			_, err := provider.Metrics.MetricsV1beta1().PodMetricses("ns").List(t.Context(), metav1.ListOptions{})
			return err
		},
		"log": func() error {
			_, err := provider.Kube.CoreV1().Pods("ns").GetLogs("pod", &corev1.PodLogOptions{}).Stream(t.Context())
			return err
		},
	} {
		require.ErrorContains(t, call(), "the provider redirects to", name)
	}
	require.False(t, asked)
}

func TestAProbeEndsInTimeAndMemory(t *testing.T) {
	drip := 10 * time.Millisecond
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "o")
			w.(http.Flusher).Flush()
			time.Sleep(drip)
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := connected(t, server).Probe(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, err = zip.Write(make([]byte, 80<<20))
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	zipped := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	}))
	defer zipped.Close()
	_, err = connected(t, zipped).Probe(t.Context())
	require.ErrorContains(t, err, "the provider's response exceeds the limit of 65536 bytes")
}

// A provider that answers is not taken for unreachable because many others ask it, too.
func TestProbesWaitForNoOtherRequests(t *testing.T) {
	release := make(chan struct{})
	const others = 16 * providerBurst // The rate limit delays the last one by 30 s.
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/pods/pod") {
			<-release
		}
		_, _ = w.Write([]byte("ok"))
	}))
	// As API servers do. Without it each request that waits has a connection, and a slow machine has no time but for
	// handshakes.
	server.EnableHTTP2, server.Config.HTTP2 = true, &http.HTTP2Config{MaxConcurrentStreams: 2 * others}
	server.StartTLS()
	defer server.Close()
	provider := connected(t, server)
	var asking sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	_, _ = provider.Kube.CoreV1().Pods("ns").Get(ctx, "first", metav1.GetOptions{}) // It opens the connection of the others.
	begun := make(chan struct{}, others)
	for range others {
		asking.Go(func() {
			begun <- struct{}{}
			_, _ = provider.Kube.CoreV1().Pods("ns").Get(ctx, "pod", metav1.GetOptions{})
		})
	}
	for range others {
		<-begun
	}
	defer asking.Wait()
	defer close(release)
	defer stop()
	probing, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	for range 3 {
		_, err := provider.Probe(probing)
		require.NoError(t, err)
	}
}

func TestShadowPodsAreReadInChunks(t *testing.T) {
	var asked []string
	answer := map[string]string{"": "a", "a": "b", "b": ""}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := r.URL.Query().Get("continue")
		asked = append(asked, r.URL.Query().Get("limit")+from)
		w.Header().Set("Content-Type", "application/json")
		next, ok := answer[from]
		if !ok {
			next = "more"
		}
		_, _ = io.WriteString(w, `{"kind":"ShadowPodList","apiVersion":"offloading.liqo.io/v1beta1","metadata":{"continue":"`+
			next+`"},"items":[{"metadata":{"name":"pod`+from+`"}}]}`)
	}))
	defer server.Close()
	provider := connected(t, server)
	var names []string
	err := allShadowPods(t.Context(), provider, func(shadow *ShadowPod) { names = append(names, shadow.Name) })
	require.NoError(t, err)
	require.Equal(t, []string{"pod", "poda", "podb"}, names)
	require.Equal(t, []string{"500", "500a", "500b"}, asked)

	provider.Config.QPS = -1
	provider.Liqo, err = liqoclient.NewForConfig(provider.Config)
	require.NoError(t, err)
	delete(answer, "b")
	err = allShadowPods(t.Context(), provider, func(*ShadowPod) {})
	require.ErrorContains(t, err, "more than 100000 items")
}

// A proxy that serves its own page, or a server that answers every request, is not a ready API server. Its text is not
// shown.
func TestOnlyOKIsReady(t *testing.T) {
	for name, tc := range map[string]struct {
		code       int
		body, want string
	}{
		"ready":  {200, "ok", ""},
		"a page": {200, "<html>secret</html>", "/readyz does not answer ok"},
		"a text": {500, "secret", "/readyz answers with the status 500"},
		"no etcd": {
			500, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]x/y failed: reason withheld\nreadyz check failed\n",
			"status 500, failed checks: etcd, x/y",
		},
		"a lie": {500, "[-]a secret failed: reason withheld\n[-]b failed: secret\n", "/readyz answers with the status 500"},
		"a Status": {
			403, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"secret","reason":"Forbidden","code":403}`,
			"/readyz answers with the status 403",
		},
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.code)
			_, _ = w.Write([]byte(tc.body))
		}))
		_, err := connected(t, server).Probe(t.Context())
		server.Close()
		if tc.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, tc.want, name)
		require.NotContains(t, err.Error(), "secret", name)
	}
}
