package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
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
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard[r.UserAgent()]++
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	provider := connected(t, server.URL)
	_, err := provider.Probe(t.Context())
	require.Error(t, err)
	_, err = provider.ShadowPods(t.Context(), "ns")
	require.Error(t, err)
	_, err = provider.Metrics.MetricsV1beta1().PodMetricses("ns").List(t.Context(), metav1.ListOptions{})
	require.Error(t, err)
	require.Equal(t, map[string]int{"ours/v1": 3}, heard)
}

// connected returns the connection to a provider whose API server has the URL.
func connected(t *testing.T, url string) *Connection {
	t.Helper()
	home := fake.NewClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "kubeconfig"},
		Data: map[string][]byte{consts.KubeconfigSecretField: []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "` + url + `"}}]
`)},
	})
	identities := identitymanager.NewCertificateIdentityReader(t.Context(), nil, home, nil, "", nil)
	c := NewConnections(home, identities, "ours/v1")
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p1"}}
	vn.Spec.ClusterID = "p1"
	vn.Spec.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: "kubeconfig"}
	require.NoError(t, c.Refresh(t.Context(), vn, time.Now()))

	return c.Get("p1")
}

func TestAConnectionFollowsNoRedirect(t *testing.T) {
	asked := false
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer inside.Close()
	server := httptest.NewServer(http.RedirectHandler(inside.URL, http.StatusFound))
	defer server.Close()
	provider := connected(t, server.URL)
	for name, call := range map[string]func() error{
		"probe": func() error { _, err := provider.Probe(t.Context()); return err },
		"Liqo":  func() error { _, err := provider.ShadowPods(t.Context(), "ns"); return err },
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
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "o")
			w.(http.Flusher).Flush()
			time.Sleep(drip)
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := connected(t, server.URL).Probe(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, err = zip.Write(make([]byte, 128<<20))
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	zipped := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	}))
	defer zipped.Close()
	_, err = connected(t, zipped.URL).Probe(t.Context())
	require.ErrorContains(t, err, "the provider's answer is longer than 65536 bytes")
}

// A provider that answers is not taken for unreachable because many others ask it, too.
func TestProbesWaitForNoOtherRequests(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			<-release
		}
		_, _ = w.Write([]byte("ok"))
	}))
	defer server.Close()
	provider := connected(t, server.URL)
	var asking sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	const others = 16 * providerBurst // The last has its turn after 30 s.
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
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	provider := connected(t, server.URL)
	names, err := provider.ShadowPods(t.Context(), "ns")
	require.NoError(t, err)
	require.Equal(t, []string{"pod", "poda", "podb"}, names)
	require.Equal(t, []string{"500", "500a", "500b"}, asked)

	provider.Config.QPS = -1
	provider.Liqo, err = liqoclient.NewForConfig(provider.Config)
	require.NoError(t, err)
	delete(answer, "b")
	_, err = provider.ShadowPods(t.Context(), "ns")
	require.ErrorContains(t, err, "more than 200 chunks")
}

// A proxy with a page of its own, or what answers everything, is no API server that is ready.
func TestOnlyOKIsReady(t *testing.T) {
	body := "<html>sign in</html>"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
	defer server.Close()
	provider := connected(t, server.URL)
	_, err := provider.Probe(t.Context())
	require.ErrorContains(t, err, `/readyz answers "<html>sign in</html>", not ok`)
	body = "ok"
	_, err = provider.Probe(t.Context())
	require.NoError(t, err)
}
