package connect

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestLongRunning(t *testing.T) {
	for target, want := range map[string]bool{
		"/api/v1/pods":                                      false,
		"/api/v1/pods?watch=false":                          false,
		"/api/v1/pods?watch=true":                           true,
		"/api/v1/pods?watch=1&sendInitialEvents=true":       true,
		"/api/v1/namespaces/ns/pods/p":                      false,
		"/api/v1/namespaces/ns/pods/log":                    true, // Of a pod named log: no deadline is the safe choice.
		"/api/v1/namespaces/ns/pods/p/log":                  true,
		"/api/v1/namespaces/ns/pods/p/log?follow=true":      true,
		"/api/v1/namespaces/ns/pods/p/exec?command=sh":      true,
		"/api/v1/namespaces/ns/pods/p/attach":               true,
		"/api/v1/namespaces/ns/pods/p/portforward":          true,
		"/api/v1/namespaces/ns/pods/p/status":               false,
		"/apis/metrics.liqo.io/v1beta1/scrape/home/metrics": false,
	} {
		require.Equal(t, want, longRunning(httptest.NewRequest(http.MethodGet, target, http.NoBody)), target)
	}
}

// stuckServer answers the path /half with a part of the body, and hangs on every other request until the test is over.
func stuckServer(t *testing.T) *httptest.Server {
	t.Helper()
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			_, _ = io.WriteString(w, "{")
			w.(http.Flusher).Flush()
		}
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(over)
		server.Close()
	})
	return server
}

func TestRequestsThatHangEnd(t *testing.T) {
	config := &rest.Config{Host: stuckServer(t).URL}
	Limit(config, 50*time.Millisecond)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	_, err = client.CoreV1().Pods("ns").Get(context.Background(), "p", metav1.GetOptions{})
	require.ErrorContains(t, err, "--request-timeout")
	_, err = client.CoreV1().RESTClient().Get().AbsPath("/half").DoRaw(context.Background())
	require.ErrorContains(t, err, "--request-timeout", "reading the answer counts too")
}

func TestWatchesHaveNoDeadline(t *testing.T) {
	config := &rest.Config{Host: stuckServer(t).URL}
	Limit(config, time.Nanosecond)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = client.CoreV1().Pods("ns").Watch(ctx, metav1.ListOptions{})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "--request-timeout")
	require.Error(t, ctx.Err(), "only the caller ended it")
}

func TestDeadlineKeepsTheTransportReachable(t *testing.T) {
	inner := http.DefaultTransport
	require.Equal(t, inner, deadline{next: inner}.WrappedRoundTripper())
}
