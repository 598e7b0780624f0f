package nodeagent

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/packets"
)

// loopback is the address of all pods in the network of this process.
const loopback = "127.0.0.1"

// podNetwork is the network of a pod. Nil means the network of this process.
type podNetwork struct {
	*packets.Namespace
	ip string
	// pod is nil for a pod in the network of the node.
	pod *packets.Pod
}

// networkOf creates the network of a pod. The API server has the same port on the pod's loopback as on this process's.
func (a *Agent) networkOf(pod *corev1.Pod) (*podNetwork, error) {
	node := a.cfg.Network
	inNetwork := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return a.cfg.Images[c.Image].InNetwork })
	if node == nil || !inNetwork {
		return nil, nil
	}
	if pod.Spec.HostNetwork {
		return &podNetwork{Namespace: node.Namespace, ip: node.Address.String()}, nil
	}
	own, err := node.AddPod()
	if err != nil {
		return nil, err
	}
	n := &podNetwork{Namespace: own.Namespace, ip: own.Address.String(), pod: own}
	if err := own.ForwardLoopback(a.cfg.APIPort); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (a *Agent) hostAddress() string {
	if a.cfg.Network == nil {
		return loopback
	}
	return a.cfg.Network.Address.String()
}

func (n *podNetwork) address() string {
	if n == nil {
		return loopback
	}
	return n.ip
}

// descriptor returns the Network for a process of the pod.
func (n *podNetwork) descriptor() int {
	if n == nil {
		return 0
	}
	return n.FD()
}

// dial connects to a port on the pod's loopback.
func (n *podNetwork) dial(ctx context.Context, port int) (net.Conn, error) {
	address := net.JoinHostPort(loopback, strconv.Itoa(port))
	if n == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	return n.DialContext(ctx, "tcp", address)
}

// reach returns nil if a process listens on a port of the pod.
func (n *podNetwork) reach(ctx context.Context, port int) error {
	conn, err := n.dial(ctx, port)
	if err != nil {
		return err
	}
	return conn.Close()
}

// httpClient returns a client in the network.
func (n *podNetwork) httpClient() *http.Client {
	if n == nil {
		return http.DefaultClient
	}
	return &http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}
}

func (n *podNetwork) close() {
	if n != nil && n.pod != nil {
		_ = n.pod.Close() // The namespaces end with the sandbox in any case.
	}
}

// PodNetwork returns the network of a running pod; nil if there is no such pod, or its packets are not real.
func (a *Agent) PodNetwork(namespace, name string) *packets.Namespace {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.pods {
		if w.pod.Namespace == namespace && w.pod.Name == name && w.network != nil {
			return w.network.Namespace
		}
	}
	return nil
}

// PodNetworks returns the networks of all pods that have their own.
func (a *Agent) PodNetworks() map[types.NamespacedName]*packets.Namespace {
	a.mu.Lock()
	defer a.mu.Unlock()
	networks := map[types.NamespacedName]*packets.Namespace{}
	for _, w := range a.pods {
		if w.network != nil && w.network.pod != nil {
			networks[types.NamespacedName{Namespace: w.pod.Namespace, Name: w.pod.Name}] = w.network.Namespace
		}
	}
	return networks
}
