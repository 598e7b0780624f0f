package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted/untrustedtest"
)

// measuredBy makes a provider's metrics server answer a list.
func measuredBy(t *testing.T, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	provider := newAPIServer(t)
	provider.instead = func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/prefix/apis/metrics.k8s.io/v1beta1/namespaces/remote/pods", r.URL.Path)
		answer(w, r)
	}
	return serve(t, t.Context(), provider.config())
}

func measured(t *testing.T, items ...metricsv1beta1.PodMetrics) http.HandlerFunc {
	t.Helper()
	text, err := json.Marshal(&metricsv1beta1.PodMetricsList{
		TypeMeta: metav1.TypeMeta{Kind: "PodMetricsList", APIVersion: "metrics.k8s.io/v1beta1"}, Items: items,
	})
	require.NoError(t, err)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}
}

func usageOf(pod string) metricsv1beta1.PodMetrics {
	return metricsv1beta1.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: "remote", Name: pod, Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"}},
		Timestamp:  metav1.Now(), Window: metav1.Duration{Duration: time.Minute},
		Containers: []metricsv1beta1.ContainerMetrics{{Name: "main", Usage: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("250123456n"), corev1.ResourceMemory: resource.MustParse("12Ki"),
		}}},
	}
}

func TestTheUsageOfPodsIsAskedOfTheirProvider(t *testing.T) {
	server := measuredBy(t, measured(t, usageOf("pod"), usageOf("pod"), usageOf("another")))
	code, body := get(t, server, "/stats/summary")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `"podRef":{"name":"pod","namespace":"ns"`)
	require.Contains(t, body, `"usageNanoCores":250123456`)
	require.Contains(t, body, `"usageBytes":12288`)
	require.Contains(t, body, `"nodeName":"broker","startTime":"2`)
	require.Equal(t, 1, strings.Count(body, "podRef"), "twice, of another VirtualNode, or not of this node")
}

// A hostile provider blocks no caller and does not exhaust the memory.
func TestAHostileProviderIsLeftOutOfTheUsage(t *testing.T) {
	for name, attack := range untrustedtest.Lists() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := measuredBy(t, attack)
			began := time.Now()
			code, body := get(t, server, "/stats/summary")
			require.Equal(t, http.StatusOK, code)
			require.NotContains(t, body, "podRef")
			require.Less(t, len(body), 4096)
			require.Less(t, time.Since(began), 2*usageTimeout)
		})
	}
}

func TestThePodsThatAProviderNamesHaveNoMoreContainersThanHere(t *testing.T) {
	many := usageOf("pod")
	for range 200 {
		many.Containers = append(many.Containers, many.Containers[0])
	}
	_, body := get(t, measuredBy(t, measured(t, many)), "/stats/summary")
	require.Equal(t, 1, strings.Count(body, `"name":"main"`))
}

func TestThePodsOfTheNodeAreListed(t *testing.T) {
	server := serve(t, t.Context(), newAPIServer(t).config())
	for _, path := range []string{"/pods", "/runningpods/"} {
		code, body := get(t, server, path)
		require.Equal(t, http.StatusOK, code)
		for _, name := range []string{"pod", "waiting", "astray"} {
			require.Contains(t, body, `"name":"`+name+`"`)
		}
	}
	code, _ := get(t, server, "/nothing")
	require.Equal(t, http.StatusNotFound, code)
}
