package kubelet

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsfake "k8s.io/metrics/pkg/client/clientset/versioned/fake"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
)

func TestTheUsageOfPodsIsAskedOfTheirProvider(t *testing.T) {
	metrics := metricsfake.NewSimpleClientset()
	metrics.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		require.Equal(t, "remote", action.GetNamespace())
		measured := func(name, virtualNode string) metricsv1beta1.PodMetrics {
			return metricsv1beta1.PodMetrics{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "remote", Name: name, Labels: map[string]string{forge.LiqoOriginClusterNodeName: virtualNode},
				},
				Containers: []metricsv1beta1.ContainerMetrics{{
					Name: "main", Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")},
				}},
			}
		}
		return true, &metricsv1beta1.PodMetricsList{Items: []metricsv1beta1.PodMetrics{
			measured("pod", "q1"), measured("pod", "q2"), measured("another", "q1"),
		}}, nil
	})
	server := serve(t, t.Context(), newAPIServer(t).config(), metrics)
	code, body := get(t, server, "/stats/summary")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `"podRef":{"name":"pod","namespace":"ns"`)
	require.Contains(t, body, `"usageNanoCores":250000000`)
	require.Contains(t, body, `"nodeName":"broker","startTime":"2`)
	require.Equal(t, 1, strings.Count(body, "podRef"), "of another VirtualNode, or not of this node")
}

func TestThePodsOfTheNodeAreListed(t *testing.T) {
	server := serve(t, t.Context(), newAPIServer(t).config(), nil)
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
