package brokernode

import (
	"context"

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
	// VirtualNode is the VirtualNode whose pods are served: the value of v1alpha1.VirtualNodeLabel.
	VirtualNode string
	// LiqoNodeName is the name by which Liqo marks and recognises its remote objects (--nodename). No pod is bound to
	// a node of that name.
	LiqoNodeName string
	// ForwardTokens lets the service account tokens of consumers through to the provider cluster.
	ForwardTokens bool
}

// assigned selects the pods of the view among those of the node.
func (v View) assigned() (labels.Requirement, error) {
	requirement, err := labels.NewRequirement(v1alpha1.VirtualNodeLabel, selection.Equals, []string{v.VirtualNode})
	if err != nil {
		return labels.Requirement{}, err
	}
	return *requirement, nil
}

// narrow adds a requirement to the label selector of a request.
func narrow(selector string, requirement labels.Requirement) (string, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return "", err
	}
	return parsed.Add(requirement).String(), nil
}

// Metrics narrows the usage of remote pods to those that this virtual kubelet has forwarded: Liqo asks for the pods of
// all the VirtualNodes of the remote cluster, and fails on the first that is not its own.
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
	own, err := labels.NewRequirement(forge.LiqoOriginClusterNodeName, selection.Equals, []string{m.view.LiqoNodeName})
	if err != nil {
		return nil, err
	}
	if opts.LabelSelector, err = narrow(opts.LabelSelector, *own); err != nil {
		return nil, err
	}
	return m.PodMetricsInterface.List(ctx, opts)
}
