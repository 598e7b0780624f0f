package podip

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
)

// ErrUnreachable is for a pod to which this cluster has no route, as its networks are now.
var ErrUnreachable = errors.New("no way to the pod")

// ErrPending is for a pod whose route is being looked up.
var ErrPending = errors.New("the way to the pod is not known yet")

// Root is where a forwarded pod really runs: its address as that cluster sees it, and the id of that cluster.
type Root struct{ IP, Cluster string }

// RootOf reads the annotations of a pod; the zero Root if one of them is missing.
func RootOf(annotations map[string]string) Root {
	root := Root{IP: annotations[v1alpha1.RootIPAnnotation], Cluster: annotations[v1alpha1.RootClusterAnnotation]}
	if root.IP == "" || root.Cluster == "" {
		return Root{}
	}
	return root
}

// Ways are all the ways from this cluster to a forwarded pod.
type Ways struct {
	// Next is the network of the cluster that pods are forwarded to.
	Next netconfig.View
	// Direct returns the network of any cluster, for traffic that goes straight to where a pod runs; nil if none may.
	Direct func(cluster string) netconfig.View
	// Through returns the address of the next cluster's external range that leads to an address which its pod shows, as
	// the next cluster sees it; an error that is ErrPending while it is not known. It answers from memory. Nil if there
	// is no remote IPAM.
	Through func(ip string) (string, error)
	// Allowed are ranges of addresses that pods of the next cluster may show beside those of Next, as they are.
	Allowed []netip.Prefix
}

// Resolve returns the address under which this cluster reaches a pod of the next cluster that shows ip and runs at root
// (zero if that is not known). It prefers the direct way; then come the pods of the next cluster itself, or addresses
// of its external range; then the way through the next cluster. With no more than Next it is Liqo's own translation,
// but that an address outside the ranges of the next cluster is refused: its administrators choose what a pod shows,
// Liqo maps it, and traffic to the pod would go there.
//
// The error is ErrUnreachable or ErrPending.
func (w Ways) Resolve(ip string, root Root) (string, error) {
	if w.Direct != nil && root.Cluster != "" {
		if network := w.Direct(root.Cluster); network.Reaches(root.IP) {
			return network.Table.Translate(root.IP)
		}
	}
	switch {
	case w.Next.Module == netconfig.Enabled && w.Next.Table != nil:
	case w.Next.Module == netconfig.Disabled && (w.Direct == nil || root.Cluster == ""):
		return ip, nil
	case w.Next.Module == netconfig.Disabled:
		return "", fmt.Errorf("%w: it runs at %s, to which this cluster has no network connection", ErrUnreachable, root.Cluster)
	default:
		return "", ErrPending // The network configuration of the next cluster is not there yet.
	}
	switch {
	case w.Next.Table.Covers(ip):
		return w.Next.Table.Translate(ip)
	case w.Through != nil:
		outside, err := w.Through(ip)
		if err != nil {
			return "", err
		}
		if !w.Next.Table.Covers(outside) {
			return "", fmt.Errorf("%w: the remote IPAM answers %q, %w", ErrUnreachable, outside, errForeign)
		}
		return w.Next.Table.Translate(outside)
	case w.allows(ip):
		return ip, nil
	case w.Direct == nil:
		return "", fmt.Errorf("%w: it shows %q, %w (--direct-traffic, --remote-ipam and --remote-cidr are for clusters that forward pods)",
			ErrUnreachable, ip, errForeign)
	case root.Cluster == "":
		return "", fmt.Errorf("%w: the cluster that forwarded it does not say where it runs (--announce-root), and no --remote-ipam is set",
			ErrUnreachable)
	default:
		return "", fmt.Errorf("%w: it runs at %s, to which this cluster has no network connection, and no --remote-ipam is set",
			ErrUnreachable, root.Cluster)
	}
}

// errForeign is why an address is refused.
var errForeign = errors.New("which is in none of the ranges of the remote cluster")

// allows reports whether an address is in one of the allowed ranges.
func (w Ways) allows(ip string) bool {
	address, err := netip.ParseAddr(ip)
	return err == nil && slices.ContainsFunc(w.Allowed, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
}
