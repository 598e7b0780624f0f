package provider

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqometrics "github.com/liqotech/liqo/pkg/virtualKubelet/metrics"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

func get(handler http.Handler, path string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return recorder
}

func TestMetricsHaveLiqosNames(t *testing.T) {
	labels := prometheus.Labels{"namespace": "counted", "reflector_resource": "Pod", "cluster_id": "p1", "node_name": "vnode"}
	defer liqometrics.ItemsCounter.Delete(labels)
	defer liqometrics.ErrorsCounter.Delete(labels)
	liqometrics.ItemsCounter.With(labels).Inc()
	liqometrics.ErrorsCounter.With(labels).Inc()
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, name := range []string{"a", "b"} {
		require.NoError(t, pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}))
	}
	reflection := &Reflection{pods: &podReflector{localPods: corev1listers.NewPodLister(pods)}}
	registry := prometheus.NewRegistry()
	_, err := NewMetrics(registry, nil)
	require.NoError(t, err)
	require.NoError(t, registry.Register(PodsMetric(reflection.pods.count)))

	response := get(process.MetricsHandler(registry), "/metrics")
	require.Equal(t, 200, response.Code)
	for _, line := range []string{
		`liqo_virtual_kubelet_reflection_item_counter{cluster_id="p1",namespace="counted",node_name="vnode",reflector_resource="Pod"} 1`,
		`liqo_virtual_kubelet_reflection_error_counter{cluster_id="p1",namespace="counted",node_name="vnode",reflector_resource="Pod"} 1`,
		"go_goroutines ", "process_resident_memory_bytes ", "liqo_broker_vk_pods 2",
	} {
		require.Contains(t, response.Body.String(), line)
	}
}

func TestMergeNotReflected(t *testing.T) {
	ownLabels := []string{"liqo.io/creator-user", "brokering.liqo.io/virtual-node", "brokering.liqo.io/provider"}
	ownAnnotations := []string{
		"brokering.liqo.io/address",
		"brokering.liqo.io/decision", "brokering.liqo.io/assigned-at", "brokering.liqo.io/moving-from",
		"brokering.liqo.io/moving-from-provider", "brokering.liqo.io/unreachable-since", "brokering.liqo.io/reclaimed-at",
		"brokering.liqo.io/traceparent",
		"brokering.liqo.io/tries", "brokering.liqo.io/remote-namespace",
		"brokering.liqo.io/root-ip", "brokering.liqo.io/root-cid", "brokering.liqo.io/remote-ip", "brokering.liqo.io/inner-ip",
		"brokering.liqo.io/released", "brokering.liqo.io/not-forwarded", "brokering.liqo.io/pod-uid", "brokering.liqo.io/constraints",
	}
	patch := &offloadingv1beta1.OffloadingPatch{LabelsNotReflected: []string{"l1"}}
	require.Equal(t, &offloadingv1beta1.OffloadingPatch{
		LabelsNotReflected:      append([]string{"l1", "l2"}, ownLabels...),
		AnnotationsNotReflected: append([]string{"a1"}, ownAnnotations...),
	}, mergeNotReflected(patch, []string{"l2"}, []string{"a1"}))
	require.Equal(t, []string{"l1"}, patch.LabelsNotReflected, "the VirtualNode's own stays as it is")
	require.Equal(t, ownLabels, mergeNotReflected(nil, nil, nil).LabelsNotReflected)
}
