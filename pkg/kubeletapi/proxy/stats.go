package proxy

import (
	"context"
	"sync"
	"time"

	statsv1alpha1 "github.com/virtual-kubelet/virtual-kubelet/node/api/statsv1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// usageTimeout bounds a request for usage or metrics to all providers.
const usageTimeout = 10 * time.Second

// share selects the pods of one request to a provider: the pods of a local namespace that are assigned to a
// VirtualNode.
type share struct {
	at        scheduler.Place
	namespace string
}

// stats returns the usage that the providers' metrics servers measure for the pods assigned there. A provider that does
// not answer is omitted.
func (s *server) stats(ctx context.Context) (*statsv1alpha1.Summary, error) {
	pods, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	shares := map[share]map[string]*corev1.Pod{}
	for _, pod := range pods {
		of := share{placement.AssignedTo(pod), pod.Namespace}
		if of.at == (scheduler.Place{}) || placement.Terminal(pod) {
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
	place, ok := s.Providers.Place(of.at, of.namespace)
	if !ok {
		return nil
	}
	var stats []statsv1alpha1.PodStats
	list := untrusted.Lists{Client: place.Metrics.MetricsV1beta1().RESTClient(), Namespace: place.Namespace, Resource: "pods"}
	options := metav1.ListOptions{LabelSelector: forge.LiqoOriginClusterNodeName + "=" + of.at.VirtualNode}
	err := untrusted.List(ctx, list, options, func(measured *podUsage) {
		if pod, ok := pods[string(measured.Metadata.Name)]; ok {
			stats = append(stats, forge.LocalPodStats(pod, measured.of(pod)))
			delete(pods, pod.Name) // Each pod counts once.
		}
	})
	if err != nil {
		s.Log.V(1).Info("Cannot read the usage of a provider's pods", "provider", of.at.Provider, "virtualNode", of.at.VirtualNode,
			"reason", untrusted.Text(err.Error()))
		return nil
	}
	return stats
}

// podUsage has the fields that are read from a provider's PodMetrics.
type podUsage struct {
	Metadata struct {
		Name untrusted.Name `json:"name"`
	} `json:"metadata"`
	Containers untrusted.Few[containerUsage] `json:"containers"`
}

type containerUsage struct {
	Name  untrusted.Name `json:"name"`
	Usage struct {
		CPU    untrusted.Quantity `json:"cpu"`
		Memory untrusted.Quantity `json:"memory"`
	} `json:"usage"`
}

// of returns the usage of the containers that the pod has.
func (u *podUsage) of(pod *corev1.Pod) *metricsv1beta1.PodMetrics {
	known, usage := sets.New[string](), &metricsv1beta1.PodMetrics{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			known.Insert(list[i].Name)
		}
	}
	for i := range u.Containers {
		container := &u.Containers[i]
		if name := string(container.Name); known.Has(name) {
			known.Delete(name)
			usage.Containers = append(usage.Containers, metricsv1beta1.ContainerMetrics{Name: name, Usage: corev1.ResourceList{
				corev1.ResourceCPU: container.Usage.CPU.Quantity, corev1.ResourceMemory: container.Usage.Memory.Quantity,
			}})
		}
	}
	return usage
}
