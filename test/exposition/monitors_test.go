package exposition

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	vkforge "github.com/liqotech/liqo/pkg/vkMachinery/forge"
)

// read returns the objects of a kind in a file below deploy/, by name. Unknown fields are an error.
func read[T any](t *testing.T, file, kind string) map[string]*T {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + file)
	require.NoError(t, err)
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	found := map[string]*T{}
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			require.NotEmpty(t, found, "%s has no %s", file, kind)
			return found
		}
		require.NoError(t, err)
		var meta metav1.PartialObjectMetadata
		require.NoError(t, yaml.Unmarshal(document, &meta))
		if meta.Kind != kind {
			continue
		}
		object := new(T)
		require.NoError(t, yaml.UnmarshalStrict(document, object), "%s, %s", file, meta.Name)
		found[meta.Name] = object
	}
}

func matches(t *testing.T, selector metav1.LabelSelector, of map[string]string) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	require.NoError(t, err)
	return parsed.Matches(labels.Set(of))
}

// portOf returns the number of a pod's port with that name.
func portOf(pod *corev1.PodSpec, name string) int32 {
	for _, container := range pod.Containers {
		for _, port := range container.Ports {
			if port.Name == name {
				return port.ContainerPort
			}
		}
	}
	return 0
}

func TestMonitorsFindWhatIsDeployed(t *testing.T) {
	monitors := read[monitoringv1.PodMonitor](t, "observability/monitors.yaml", "PodMonitor")
	require.Len(t, monitors, 2)
	jobOf := func(configs []*monitoringv1.RelabelConfig) string {
		require.Len(t, configs, 1)
		require.Equal(t, "job", configs[0].TargetLabel)
		return configs[0].Replacement
	}

	broker := monitors["liqo-broker"].Spec
	deployment := read[appsv1.Deployment](t, "broker.yaml", "Deployment")["liqo-broker"]
	require.True(t, matches(t, broker.Selector, deployment.Spec.Template.Labels))
	require.Equal(t, int32(8080), portOf(&deployment.Spec.Template.Spec, broker.PodMetricsEndpoints[0].Port))
	require.Equal(t, monitors["liqo-broker"].Namespace, deployment.Namespace)
	require.Equal(t, Broker, jobOf(broker.PodMetricsEndpoints[0].RelabelConfigs))

	catalog := read[monitoringv1.ServiceMonitor](t, "observability/monitors.yaml", "ServiceMonitor")["liqo-broker-catalog"]
	service := read[corev1.Service](t, "catalog.yaml", "Service")["liqo-broker-catalog"]
	require.True(t, matches(t, catalog.Spec.Selector, service.Labels))
	require.Equal(t, catalog.Namespace, service.Namespace)
	for _, port := range service.Spec.Ports {
		if port.Name == catalog.Spec.Endpoints[0].Port {
			pods := read[appsv1.Deployment](t, "catalog.yaml", "Deployment")["liqo-broker-catalog"].Spec.Template
			require.Equal(t, int32(8082), portOf(&pods.Spec, port.TargetPort.String()))
			require.Equal(t, int32(8082), port.Port)
		}
	}
	require.Equal(t, Catalog, jobOf(catalog.Spec.Endpoints[0].RelabelConfigs))

	kubelets := monitors["liqo-broker-virtual-kubelets"].Spec
	virtualNode := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: "p1"}}
	options := &offloadingv1beta1.VkOptionsTemplate{Spec: offloadingv1beta1.VkOptionsTemplateSpec{
		MetricsEnabled: true, MetricsAddress: ":8082",
	}}
	liqos := vkforge.VirtualKubeletDeployment("broker", "liqo", nil, virtualNode, options).Spec.Template
	require.True(t, matches(t, kubelets.Selector, liqos.Labels), "Liqo's own labels")
	require.Equal(t, int32(8082), portOf(&liqos.Spec, kubelets.PodMetricsEndpoints[0].Port), "Liqo's own port")
	require.True(t, kubelets.NamespaceSelector.Any)
	require.True(t, kubelets.PodMetricsEndpoints[0].HonorLabels)
	require.Equal(t, VirtualKubelet, jobOf(kubelets.PodMetricsEndpoints[0].RelabelConfigs))
}

func TestTheOperatorKnowsOurRules(t *testing.T) {
	rules := read[monitoringv1.PrometheusRule](t, "observability/rules.yaml", "PrometheusRule")["liqo-broker"]
	require.NotEmpty(t, rules.Spec.Groups)
	require.NotEmpty(t, read[corev1.ConfigMap](t, "observability/dashboard-configmap.yaml", "ConfigMap")["liqo-broker-dashboard"].Data)
}
