package brokernode

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// View selects the pods that a virtual kubelet serves.
type View struct {
	// Node is the broker's node.
	Node string
	// VirtualNode is the VirtualNode whose pods are served: the value of v1alpha1.VirtualNodeLabel. Provider is the id
	// of its cluster: the value of v1alpha1.ProviderLabel. VirtualNodes of two providers may have the same name,
	// because they are in different tenant namespaces.
	VirtualNode, Provider string
	// LiqoNodeName is the name with which Liqo marks and recognises its remote objects (--nodename). No pod is bound to
	// a node of that name.
	LiqoNodeName string
	// ForwardTokens forwards the service account tokens of consumers to the provider cluster.
	ForwardTokens bool
}

// assigned returns the labels of the view's pods among the pods of the node. The broker writes and removes both labels
// in one request.
func (v View) assigned() labels.Set {
	return labels.Set{v1alpha1.VirtualNodeLabel: v.VirtualNode, v1alpha1.ProviderLabel: v.Provider}
}

// Serves reports whether a pod belongs to the view.
func (v View) Serves(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == v.Node && v.assigned().AsSelector().Matches(labels.Set(pod.Labels))
}

// narrow adds the values of labels to the label selector of a request.
func narrow(selector string, values labels.Set) (string, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return "", err
	}
	for key, value := range values {
		requirement, err := labels.NewRequirement(key, selection.Equals, []string{value})
		if err != nil {
			return "", err
		}
		parsed = parsed.Add(*requirement) // It sorts by key.
	}
	return parsed.String(), nil
}

// Metrics limits the usage of remote pods to the pods that this virtual kubelet has forwarded: Liqo asks for the pods
// of all VirtualNodes of the remote cluster, and fails on the first one that is not its own.
func (v View) Metrics(usage func(namespace string) metricsclient.PodMetricsInterface) func(string) metricsclient.PodMetricsInterface {
	return func(namespace string) metricsclient.PodMetricsInterface {
		return ownMetrics{PodMetricsInterface: usage(namespace), view: v}
	}
}

type ownMetrics struct {
	metricsclient.PodMetricsInterface
	view View
}

func (m ownMetrics) List(ctx context.Context, opts metav1.ListOptions) (*metricsv1beta1.PodMetricsList, error) {
	var err error
	if opts.LabelSelector, err = narrow(opts.LabelSelector, labels.Set{forge.LiqoOriginClusterNodeName: m.view.LiqoNodeName}); err != nil {
		return nil, err
	}
	return m.PodMetricsInterface.List(ctx, opts)
}
