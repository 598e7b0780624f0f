package brokernode

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
)

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
