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
// one answers there. Ports that cannot be served are logged: the virtual kubelet works without them. The pod is read until
// that succeeds, because a pod that is never ready would stop the rollout.
func serveProbes(ctx context.Context, cfg *Config, local kubernetes.Interface, handler http.Handler) error {
	if cfg.PodName == "" || cfg.VirtualNodeNamespace == "" {
		return nil // It runs outside of a pod.
	}
	var pod *corev1.Pod
	for pod == nil {
		var err error
		pod, err = process.Eventually(ctx, cfg.Log, cfg.StartupTimeout, "own pod", func(ctx context.Context) (*corev1.Pod, error) {
			return local.CoreV1().Pods(cfg.VirtualNodeNamespace).Get(ctx, cfg.PodName, metav1.GetOptions{})
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			cfg.Log.Error(err, "Cannot read the own pod to serve the probes at the ports that it names")
			pod = nil
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, port := range probedPorts(pod) {
		switch host, served := splitAddress(cfg.HealthAddress); {
		case served == port && (host == "" || net.ParseIP(host).IsUnspecified() || host == pod.Status.PodIP):
			continue
		case port == int(cfg.Kubelet.Port) || port == portOf(cfg.MetricsAddress):
			cfg.Log.Error(nil, "Not serving the probes at a port that this pod's probes name: the kubelet API or the metrics have it",
				"port", port)
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

// splitAddress returns the parts of an address; the port is 0 if it has none.
func splitAddress(address string) (host string, port int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0
	}
	port, err = strconv.Atoi(text)
	if err != nil {
		return host, 0
	}
	return host, port
}

func portOf(address string) int {
	_, port := splitAddress(address)
	return port
}

// probedPorts returns the ports at which the kubelet asks the virtual kubelet's container for paths of the health handler,
// sorted. A mesh may have replaced a probe by one of its sidecar, with another path.
func probedPorts(pod *corev1.Pod) []int {
	container := ownContainer(pod)
	if container == nil {
		return nil
	}
	var ports []int
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Host != "" || probe.HTTPGet.Scheme == corev1.URISchemeHTTPS ||
			!slices.Contains(httpserve.HealthPaths(), probe.HTTPGet.Path) {
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

// ownContainer returns the container virtual-kubelet, or the only one; nil if it cannot be determined, for example
// beside an injected sidecar. Other containers serve their own probes.
func ownContainer(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.Containers {
		if len(pod.Spec.Containers) == 1 || pod.Spec.Containers[i].Name == vkMachinery.ContainerName {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}
