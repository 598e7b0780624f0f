package provider

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/liqotech/liqo/pkg/vkMachinery"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

// serveProbes serves the probes also at the ports where the kubelet asks this pod. Since v1.3.0 liqo-controller-manager
// writes a readiness probe with a fixed port into the Deployment of a virtual kubelet, and replaces no pod before the new
// one answers there. Ports that cannot be served are logged: the virtual kubelet works without them.
func serveProbes(ctx context.Context, cfg *Config, local kubernetes.Interface, handler http.Handler) error {
	if cfg.PodName == "" || cfg.VirtualNodeNamespace == "" {
		return nil // It runs outside of a pod.
	}
	pod, err := process.Eventually(ctx, cfg.Log, cfg.StartupTimeout, "own pod", func(ctx context.Context) (*corev1.Pod, error) {
		return local.CoreV1().Pods(cfg.VirtualNodeNamespace).Get(ctx, cfg.PodName, metav1.GetOptions{})
	})
	if err != nil {
		if ctx.Err() == nil {
			cfg.Log.Error(err, "Serving the probes at no other port, reading the own pod failed")
		}
		return nil
	}
	served := []string{cfg.HealthAddress, cfg.MetricsAddress, net.JoinHostPort("", strconv.Itoa(int(cfg.Kubelet.Port)))}
	group, ctx := errgroup.WithContext(ctx)
	for _, port := range probedPorts(pod) {
		if slices.ContainsFunc(served, func(address string) bool { return portOf(address) == port }) {
			continue
		}
		cfg.Log.Info("Serving the probes at a port that this pod's probes name", "port", port)
		group.Go(func() error {
			if err := httpserve.ServeOn(ctx, net.JoinHostPort("", strconv.Itoa(port)), "probe of this pod", handler); err != nil {
				cfg.Log.Error(err, "Serving the probes at a port that this pod's probes name failed", "port", port)
			}
			return nil
		})
	}
	return group.Wait()
}

// portOf returns the port of an address; 0 if it has none.
func portOf(address string) int {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return port
}

// probedPorts returns the ports to which the kubelet sends HTTP requests for the probes of the virtual kubelet's
// container, sorted.
func probedPorts(pod *corev1.Pod) []int {
	container := ownContainer(pod)
	if container == nil {
		return nil
	}
	var ports []int
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Host != "" || probe.HTTPGet.Scheme == corev1.URISchemeHTTPS {
			continue
		}
		port := probe.HTTPGet.Port.IntValue()
		if probe.HTTPGet.Port.Type == intstr.String {
			for i := range container.Ports {
				if container.Ports[i].Name == probe.HTTPGet.Port.StrVal {
					port = int(container.Ports[i].ContainerPort)
				}
			}
		}
		if port > 0 {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// ownContainer returns the container with Liqo's name of it, or the only one; nil if it cannot be determined, for example
// beside an injected sidecar. Other containers serve their own probes.
func ownContainer(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.Containers {
		if len(pod.Spec.Containers) == 1 || pod.Spec.Containers[i].Name == vkMachinery.ContainerName {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}
