package podip

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	ipamlisters "github.com/liqotech/liqo/pkg/client/listers/ipam/v1alpha1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
)

// Config selects how forwarded pods are reached. The zero value is Liqo's own behaviour, which assumes that all pods
// run in the remote cluster.
type Config struct {
	// Direct prefers this cluster's own network with the cluster where a pod runs.
	Direct bool
	// Origin is the id of the remote cluster. It is annotated on the pods that the remote cluster runs itself; ""
	// annotates nothing.
	Origin string
	// Opaque shows pods with their addresses in this cluster's external range.
	Opaque bool
	// Allowed are address ranges that remote pods may show in addition to the remote cluster's ranges.
	Allowed []netip.Prefix
}

// Sources are the inputs of address resolution.
type Sources struct {
	Networks Networks
	// Remote is nil if there is no remote IPAM.
	Remote RemoteIPAM
}

// Networks returns the networks of remote clusters; it is a netconfig.Watcher.
type Networks interface {
	View() netconfig.View
	Of(cluster string) netconfig.View
}

// RemoteIPAM is an ipam.Client.
type RemoteIPAM interface {
	Map(ip string) (address string, known bool)
	Problem(ip string) error
	Forget(ip string)
}

type resolver struct {
	Sources
	Config
}

// resolve returns the address with which this cluster reaches a remote pod that has one. The error is one of
// Ways.Resolve's.
func (r *resolver) resolve(remote *corev1.Pod) (string, error) {
	ways := Ways{Next: r.Networks.View(), Allowed: r.Allowed}
	if r.Direct {
		ways.Direct = r.Networks.Of
	}
	if r.Remote != nil {
		ways.Through = r.through
	}
	return ways.Resolve(remote.Status.PodIP, r.rootOf(remote))
}

// rootOf returns where a remote pod runs, from its annotations. They are read only if pods of the remote cluster may
// run elsewhere: a cluster that forwards no pods has no such annotations to write.
func (r *resolver) rootOf(remote *corev1.Pod) Root {
	if !r.changes() {
		return Root{}
	}
	return RootOf(remote.Annotations)
}

// through is Ways.Through.
func (r *resolver) through(ip string) (string, error) {
	if address, known := r.Remote.Map(ip); known {
		return address, nil
	}
	if problem := r.Remote.Problem(ip); problem != nil {
		return "", fmt.Errorf("%w: %w", ErrPending, problem)
	}
	return "", ErrPending
}

// asks reports whether the address of a pod may have to be looked up.
func (r *resolver) asks() bool { return r.Remote != nil || r.isOpaque() }

// changes reports whether the address of a running pod may change here.
func (r *resolver) changes() bool { return r.Direct || r.Remote != nil }

// isOpaque reports whether pods are shown with external addresses. These exist only with Liqo's network.
func (r *resolver) isOpaque() bool {
	return r.Opaque && r.Networks.View().Module != netconfig.Disabled
}

// location returns the annotations of a local pod that name the place where the remote pod really runs. Nil if the
// remote pod has no address.
func (r *resolver) location(local, remote *corev1.Pod) map[string]string {
	if remote.Status.PodIP == "" {
		return nil
	}
	root := r.rootOf(remote)
	if root == (Root{}) && r.Origin != "" {
		root = Root{IP: remote.Status.PodIP, Cluster: r.Origin}
	}
	out := map[string]string{}
	if root != (Root{}) {
		out[v1alpha1.RootIPAnnotation], out[v1alpha1.RootClusterAnnotation] = root.IP, root.Cluster
	}
	if r.Remote != nil {
		out[v1alpha1.RemoteIPAnnotation] = remote.Status.PodIP
	}
	if !r.isOpaque() {
		return out
	}
	inner, err := r.resolve(remote)
	if err != nil && RootOf(local.Annotations) == root {
		inner = local.Annotations[v1alpha1.InnerIPAnnotation] // The network is being reconfigured.
	}
	if inner != "" {
		out[v1alpha1.InnerIPAnnotation] = inner
	}
	return out
}

// external returns the address of this cluster's external range that leads to an inner address. The error is ErrPending
// until the broker, or Liqo, has mapped it.
func external(ips ipamlisters.IPNamespaceLister, inner string) (string, error) {
	address, err := netip.ParseAddr(inner)
	if err != nil {
		return "", fmt.Errorf("inner address: %w", err)
	}
	ip, err := ips.Get(v1alpha1.EndpointIPName(address))
	if kerrors.IsNotFound(err) {
		return "", ErrPending
	}
	if err != nil {
		return "", err
	}
	if ip.Labels[v1alpha1.EndpointIPLabel] == "" || string(ip.Spec.IP) != inner || ip.Status.IP == "" || ip.DeletionTimestamp != nil {
		return "", ErrPending
	}
	return string(ip.Status.IP), nil
}

// annotationChanges returns the merge patch that turns a local pod's annotations into the wanted ones; nil if they
// already match.
func annotationChanges(local *corev1.Pod, want map[string]string) map[string]any {
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
