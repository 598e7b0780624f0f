package provider

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	ipamlisters "github.com/liqotech/liqo/pkg/client/listers/ipam/v1alpha1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
)

// AddressConfig says how pods that the remote cluster has forwarded are reached; the zero value is Liqo's own way, for
// which they run in the remote cluster.
type AddressConfig struct {
	// Direct prefers the network of this cluster with the one where a pod runs.
	Direct bool
	// RemoteIPAM is asked for pods that are not reached directly; nil if there is none.
	RemoteIPAM *RemoteIPAMConfig
	// Announce has the pods of a broker's node say where they run. Without it, consumers do not learn it.
	Announce bool
	// Opaque shows the pods of a broker's node under their addresses in this cluster's external range, so that consumers
	// without any of our settings reach them.
	Opaque bool
}

// RemoteIPAMConfig says where to ask how the pods that the remote cluster has forwarded are reached through it.
type RemoteIPAMConfig struct {
	// Server is HOST:PORT.
	Server string
	// Insecure speaks plaintext, as Liqo v0.x does.
	Insecure bool
	// CAFile and ServerName are what the server's certificate is checked against; see ipam.ClientTLS for the defaults.
	CAFile, ServerName string
}

// remoteIPAM is what is asked of an ipam.Client.
type remoteIPAM interface {
	Map(ip string) (address string, known bool)
	Problem(ip string) error
	Forget(ip string)
}

// Ways are what is known of the ways to remote pods.
type Ways struct {
	Networks networks
	// Remote is nil unless a remote IPAM is asked.
	Remote remoteIPAM
}

// networks are the networks of remote clusters, as netconfig.Watcher knows them.
type networks interface {
	View() netconfig.View
	Of(cluster string) netconfig.View
}

// addresses resolves the addresses of remote pods.
type addresses struct {
	Ways
	direct bool
	// origin is the id of the remote cluster if it is the last one for its pods, and that may be known; else "".
	origin string
	// opaque has pods shown under external addresses.
	opaque bool
}

func newAddresses(cfg *Config, ways Ways) *addresses {
	a := &addresses{Ways: ways, direct: cfg.Addresses.Direct}
	if cfg.BrokerNode != "" && cfg.Addresses.Announce {
		a.origin = string(cfg.ForeignCluster)
	}
	a.opaque = cfg.BrokerNode != "" && cfg.Addresses.Opaque
	return a
}

// resolve returns the address under which this cluster reaches a remote pod that has one; the error is one of
// ipam.Ways.Resolve.
func (a *addresses) resolve(remote *corev1.Pod) (string, error) {
	ways := ipam.Ways{Next: a.Networks.View()}
	if a.direct {
		ways.Direct = a.Networks.Of
	}
	if a.Remote != nil {
		ways.Through = a.through
	}
	return ways.Resolve(remote.Status.PodIP, ipam.RootOf(remote.Annotations))
}

// through is ipam.Ways.Through.
func (a *addresses) through(ip string) (string, error) {
	if address, known := a.Remote.Map(ip); known {
		return address, nil
	}
	if problem := a.Remote.Problem(ip); problem != nil {
		return "", fmt.Errorf("%w: %w", ipam.ErrPending, problem)
	}
	return "", ipam.ErrPending
}

// looksUp says whether the address of a pod may have to be asked for.
func (a *addresses) looksUp() bool { return a.Remote != nil || a.isOpaque() }

// follow says whether the addresses of pods change here while they live, so that what Liqo mapped has to follow.
func (a *addresses) follow() bool { return a.direct || a.Remote != nil }

// standsFor returns the annotations of a local pod that say what its address stands for: where the remote pod really
// runs. Nil if that has no address, or says nothing of it.
func (a *addresses) standsFor(local, remote *corev1.Pod) map[string]string {
	if remote.Status.PodIP == "" {
		return nil
	}
	root := ipam.RootOf(remote.Annotations)
	if root == (ipam.Root{}) && a.origin != "" {
		root = ipam.Root{IP: remote.Status.PodIP, Cluster: a.origin}
	}
	out := map[string]string{}
	if root != (ipam.Root{}) {
		out[v1alpha1.RootIPAnnotation], out[v1alpha1.RootClusterAnnotation] = root.IP, root.Cluster
	}
	if a.Remote != nil {
		out[v1alpha1.RemoteIPAnnotation] = remote.Status.PodIP
	}
	if !a.isOpaque() {
		return out
	}
	inner, err := a.resolve(remote)
	if err != nil && ipam.RootOf(local.Annotations) == root {
		inner = local.Annotations[v1alpha1.InnerIPAnnotation] // The network is being reconfigured.
	}
	if inner != "" {
		out[v1alpha1.InnerIPAnnotation] = inner
	}
	return out
}

// isOpaque says whether pods are shown under external addresses. Without Liqo's network there are none.
func (a *addresses) isOpaque() bool {
	return a.opaque && a.Networks.View().Module != netconfig.Disabled
}

// external returns the address of this cluster's external range that leads to one which the cluster itself uses; the
// error is ipam.ErrPending while the broker, or Liqo, has not mapped it.
func external(ips ipamlisters.IPNamespaceLister, inner string) (string, error) {
	address, err := netip.ParseAddr(inner)
	if err != nil {
		return "", fmt.Errorf("inner address: %w", err)
	}
	ip, err := ips.Get(v1alpha1.EndpointIPName(address))
	if kerrors.IsNotFound(err) {
		return "", ipam.ErrPending
	}
	if err != nil {
		return "", err
	}
	if ip.Labels[v1alpha1.EndpointIPLabel] == "" || string(ip.Spec.IP) != inner || ip.Status.IP == "" || ip.DeletionTimestamp != nil {
		return "", ipam.ErrPending
	}
	return string(ip.Status.IP), nil
}

// missing returns what has to change of a local pod's annotations for them to say want, as a merge patch has it; nil if
// they do.
func missing(local *corev1.Pod, want map[string]string) map[string]any {
	var patch map[string]any
	for _, key := range v1alpha1.RootAnnotations() {
		value, wanted := want[key]
		current, there := local.Annotations[key]
		if wanted == there && value == current {
			continue
		}
		if patch == nil {
			patch = map[string]any{}
		}
		patch[key] = nil
		if wanted {
			patch[key] = value
		}
	}
	return patch
}
