package podip

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
)

// ErrUnreachable means that this cluster has no route to the pod with its current networks.
var ErrUnreachable = errors.New("no route to the pod")

// ErrPending means that the route to the pod is still being looked up.
var ErrPending = errors.New("the route to the pod is not known yet")

// Root is the place where a forwarded pod really runs: its address as that cluster sees it, and the id of that cluster.
type Root struct{ IP, Cluster string }

// RootOf reads the annotations of a pod. It returns the zero Root if one of them is missing.
func RootOf(annotations map[string]string) Root {
	root := Root{IP: annotations[v1alpha1.RootIPAnnotation], Cluster: annotations[v1alpha1.RootClusterAnnotation]}
	if root.IP == "" || root.Cluster == "" {
		return Root{}
	}
	return root
}

// Ways are all ways from this cluster to a forwarded pod.
type Ways struct {
	// Next is the network of the cluster that pods are forwarded to.
	Next netconfig.View
	// Direct returns the network of any cluster, for traffic that goes straight to the cluster where a pod runs; nil if
	// direct traffic is disabled.
	Direct func(cluster string) netconfig.View
	// Through returns the address of the next cluster's external range that leads to an address which its pod shows, as
	// the next cluster sees it. The error is ErrPending while the address is not known. Through answers from memory.
	// Nil if there is no remote IPAM.
	Through func(ip string) (string, error)
	// Allowed are address ranges that pods of the next cluster may show in addition to the ranges of Next. These
	// addresses are not translated.
	Allowed []netip.Prefix
}

// Resolve returns the address with which this cluster reaches a pod of the next cluster that shows ip and runs at root
// (zero if unknown). It prefers the direct way. The second choice is Next: for pods of the next cluster itself, and
// addresses of its external range. The last choice is the way through the next cluster. With Next only, it is Liqo's
// own translation with one exception: an address outside the ranges of the next cluster is rejected. The administrators
// of that cluster choose the addresses that its pods show, Liqo would map any of them, and traffic to the pod would go
// there.
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
		return "", ErrPending // The network configuration of the next cluster does not exist yet.
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
		return "", fmt.Errorf("%w: it shows %q, %w (if that cluster forwards pods, set --direct-traffic, --remote-ipam or --remote-cidr)",
			ErrUnreachable, ip, errForeign)
	case root.Cluster == "":
		return "", fmt.Errorf("%w: the cluster that forwarded it does not announce where it runs (--announce-root), "+
			"and no --remote-ipam is set", ErrUnreachable)
	default:
		return "", fmt.Errorf("%w: it runs at %s, to which this cluster has no network connection, and no --remote-ipam is set",
			ErrUnreachable, root.Cluster)
	}
}

// errForeign is the reason why an address is rejected.
var errForeign = errors.New("which is outside the ranges of the remote cluster")

// allows reports whether an address is in one of the allowed ranges.
func (w Ways) allows(ip string) bool {
	address, err := netip.ParseAddr(ip)
	return err == nil && slices.ContainsFunc(w.Allowed, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
}
