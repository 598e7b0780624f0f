package kubelet

import (
	"context"
	"sync"
	"time"

	statsv1alpha1 "github.com/virtual-kubelet/virtual-kubelet/node/api/statsv1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// usageTimeout bounds a question for usage or metrics to all providers.
const usageTimeout = 10 * time.Second

// share is what is asked of one provider at once: the pods of a local namespace that are assigned to a VirtualNode.
type share struct{ virtualNode, namespace string }

// stats returns what the providers' metrics servers measure of the pods assigned there. A provider that does not answer
// is left out.
func (s *server) stats(ctx context.Context) (*statsv1alpha1.Summary, error) {
	pods, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	shares := map[share]map[string]*corev1.Pod{}
	for _, pod := range pods {
		of := share{pod.Labels[v1alpha1.VirtualNodeLabel], pod.Namespace}
		if of.virtualNode == "" || placement.Terminal(pod) {
			continue
		}
		if shares[of] == nil {
			shares[of] = map[string]*corev1.Pod{}
		}
		shares[of][pod.Name] = pod
	}

	var mu sync.Mutex
	var all []statsv1alpha1.PodStats
	var asking sync.WaitGroup
	for of, pods := range shares {
		asking.Go(func() {
			stats := s.usage(ctx, of, pods)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, stats...)
		})
	}
	asking.Wait()
	summary := forge.LocalNodeStats(all) // Liqo sets the name of the virtual kubelet's own Node. There is none here.
	summary.Node.NodeName, summary.Node.StartTime = s.NodeName, s.started
	return summary, nil
}

func (s *server) usage(ctx context.Context, of share, pods map[string]*corev1.Pod) []statsv1alpha1.PodStats {
	place, ok := s.Providers.Place(of.virtualNode, of.namespace)
	if !ok {
		return nil
	}
	measured, err := place.Metrics.MetricsV1beta1().PodMetricses(place.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: forge.LiqoOriginClusterNodeName + "=" + of.virtualNode})
	if err != nil {
		s.Log.V(1).Info("Cannot read the usage of a provider's pods", "virtualNode", of.virtualNode, "because", err.Error())
		return nil
	}
	var stats []statsv1alpha1.PodStats
	for i := range measured.Items {
		if pod, ok := pods[measured.Items[i].Name]; ok {
			stats = append(stats, forge.LocalPodStats(pod, &measured.Items[i]))
		}
	}
	return stats
}
