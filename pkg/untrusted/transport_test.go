package untrusted

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// provider is a hostile provider that answers every request by the handler. Its URL has a path.
func provider(t *testing.T, answer http.HandlerFunc) (*rest.Config, kubernetes.Interface) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	config := &rest.Config{Host: server.URL + "/prefix/"}
	Wrap(config)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return config, client
}

func probe(ctx context.Context, client kubernetes.Interface) ([]byte, error) {
	return client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
}

func TestRedirectsAreRefused(t *testing.T) {
	asked := false
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		_, _ = io.WriteString(w, "a secret of this network")
	}))
	defer inside.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		config, client := provider(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, inside.URL+"/latest/meta-data", code)
		})
		for name, call := range map[string]func() error{
			"probe": func() error { _, err := probe(t.Context(), client); return err },
			"get": func() error {
				_, err := client.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
				return err
			},
			"list": func() error {
				_, err := client.CoreV1().Pods("ns").List(t.Context(), metav1.ListOptions{})
				return err
			},
			"watch": func() error {
				_, err := client.CoreV1().Pods("ns").Watch(t.Context(), metav1.ListOptions{})
				return err
			},
			"log": func() error {
				_, err := client.CoreV1().Pods("ns").GetLogs("p", &corev1.PodLogOptions{}).Stream(t.Context())
				return err
			},
			"create": func() error {
				_, err := client.CoreV1().Pods("ns").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
				return err
			},
			"exec by SPDY": func() error {
				target := client.CoreV1().RESTClient().Post().Resource("pods").Namespace("ns").Name("p").SubResource("exec").URL()
				executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, target)
				require.NoError(t, err)
				return executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
			},
		} {
			require.ErrorContains(t, call(), `the provider redirects to "http://127.0.0.1`, "%s %d", name, code)
		}
		executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, config.Host)
		require.NoError(t, err)
		require.Error(t, executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}))
	}
	require.False(t, asked)
}

func TestTheTargetOfARedirectIsCut(t *testing.T) {
	_, client := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/"+strings.Repeat("x", 9000))
		w.WriteHeader(http.StatusFound)
	})
	_, err := probe(t.Context(), client)
	require.ErrorContains(t, err, "the provider redirects to")
	require.Less(t, len(err.Error()), maxTarget+200)
}

// endless answers with a body that does not end by itself, without a length.
func endless(prefix string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, prefix)
		for {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
				return
			}
		}
	}
}

func TestAnswersWithoutEndAreCut(t *testing.T) {
	_, client := provider(t, endless(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"`))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := probe(ctx, client)
	require.ErrorContains(t, err, "the provider's response exceeds the limit of 65536 bytes")
	_, err = client.CoreV1().Pods("ns").Get(ctx, "p", metav1.GetOptions{})
	require.ErrorContains(t, err, "the provider's response exceeds the limit of 4194304 bytes")
	_, err = client.CoreV1().Pods("ns").List(ctx, metav1.ListOptions{})
	require.ErrorContains(t, err, "the provider's response exceeds the limit of 134217728 bytes")
}

func TestAnErrorWithoutEndIsCut(t *testing.T) {
	config, client := provider(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		endless("")(w, r)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := client.CoreV1().Pods("ns").Watch(ctx, metav1.ListOptions{})
	require.Error(t, err)
	_, err = client.CoreV1().Pods("ns").GetLogs("p", &corev1.PodLogOptions{}).Stream(ctx)
	require.Error(t, err)
	target := client.CoreV1().RESTClient().Post().Resource("pods").Namespace("ns").Name("p").SubResource("exec").URL()
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, target)
	require.NoError(t, err)
	require.ErrorContains(t, executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard}),
		"unable to upgrade connection")
	require.NoError(t, ctx.Err(), "all of them end by the bound")
}

func TestALengthThatIsTooLongIsRefusedAtOnce(t *testing.T) {
	_, client := provider(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "65537")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	_, err := probe(t.Context(), client)
	require.ErrorContains(t, err, "exceeds the limit of 65536 bytes")
}

func TestNothingIsDecompressed(t *testing.T) {
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, err := zip.Write(make([]byte, 32<<20))
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	require.Less(t, bomb.Len(), maxHealth)
	_, client := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	got, err := probe(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, got, bomb.Len())
}

func TestAnAnswerOfTheExactLengthIsRead(t *testing.T) {
	for _, chunk := range []int{1 << 10, maxHealth} {
		_, client := provider(t, func(w http.ResponseWriter, _ *http.Request) {
			for range maxHealth / chunk {
				_, _ = w.Write(bytes.Repeat([]byte("x"), chunk))
				w.(http.Flusher).Flush()
			}
		})
		got, err := probe(t.Context(), client)
		require.NoError(t, err)
		require.Len(t, got, maxHealth)
	}
}

func TestStreamsHaveNoBound(t *testing.T) {
	const much = 2 * maxObject
	_, client := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, much))
	})
	body, err := client.CoreV1().Pods("ns").GetLogs("p", &corev1.PodLogOptions{}).Stream(t.Context())
	require.NoError(t, err)
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	require.NoError(t, err)
	require.EqualValues(t, much, n)
}

func TestAWatchHasNoBound(t *testing.T) {
	const events = 100
	_, client := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		pod := corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
		pod.Annotations = map[string]string{"a": strings.Repeat("x", 100<<10)}
		raw, _ := json.Marshal(pod)
		for range events {
			_, _ = io.WriteString(w, `{"type":"ADDED","object":`+string(raw)+"}\n")
		}
	})
	watch, err := client.CoreV1().Pods("ns").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watch.Stop()
	for range events {
		event, open := <-watch.ResultChan()
		require.True(t, open)
		require.Equal(t, "ADDED", string(event.Type))
	}
}

func TestADeadlineHoldsWhileTheAnswerDrips(t *testing.T) {
	_, client := provider(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := io.WriteString(w, "o"); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := probe(ctx, client)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestLimits(t *testing.T) {
	for target, want := range map[string]int64{
		"GET /readyz":                                                         maxHealth,
		"GET /livez":                                                          maxHealth,
		"GET /version":                                                        maxObject,
		"GET /apis":                                                           maxObject,
		"GET /api/v1":                                                         maxObject,
		"GET /elsewhere?watch=true":                                           maxObject,
		"GET /api/v1/namespaces/ns/pods":                                      maxList,
		"GET /api/v1/pods":                                                    maxList,
		"DELETE /api/v1/namespaces/ns/pods":                                   maxList,
		"POST /api/v1/namespaces/ns/pods":                                     maxObject,
		"GET /api/v1/namespaces/ns/pods/p":                                    maxObject,
		"GET /api/v1/namespaces/ns/pods/log":                                  maxObject,
		"DELETE /api/v1/namespaces/ns/pods/p":                                 maxObject,
		"PATCH /api/v1/namespaces/ns/pods/p":                                  maxObject,
		"GET /api/v1/namespaces/ns/pods?watch=true&x=y":                       0,
		"GET /api/v1/namespaces/ns/pods?watch=1":                              0,
		"GET /api/v1/namespaces/ns/pods?watch=false":                          maxList,
		"GET /api/v1/namespaces/ns/pods/p/log?follow=true":                    0,
		"POST /api/v1/namespaces/ns/pods/p/exec":                              maxObject,
		"GET /apis/offloading.liqo.io/v1beta1/namespaces/ns/shadowpods":       maxList,
		"GET /apis/offloading.liqo.io/v1beta1/namespaces/ns/shadowpods/watch": maxObject,
		"GET /apis/metrics.liqo.io/v1beta1/scrape/home/metrics":               maxList,
	} {
		method, url, _ := strings.Cut(target, " ")
		require.Equal(t, want, limitOf(httptest.NewRequest(method, url, http.NoBody), http.StatusOK), target)
	}
	exec := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/ns/pods/p/exec", http.NoBody)
	require.Zero(t, limitOf(exec, http.StatusSwitchingProtocols))
	watch := httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=true", http.NoBody)
	require.EqualValues(t, maxError, limitOf(watch, http.StatusForbidden), "client-go reads the whole of an error")
}

func TestTheTransportBelowIsFound(t *testing.T) {
	require.Equal(t, http.DefaultTransport, transport{next: http.DefaultTransport}.WrappedRoundTripper())
}
