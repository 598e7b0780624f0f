package endpoints

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
)

// relayedNodePrefix begins the name of the node of an endpoint of a Service with direct connections that is reached through this
// cluster, before the name of its own node. No real node's name has a slash.
const relayedNodePrefix = "relayed.brokering.liqo.io/"

// connect has the provider reach endpoints of a Service with direct connections by its own networks with the clusters where the
// pods run. Liqo lists for it the addresses on virtual nodes with their clusters. The provider looks all addresses of the
// EndpointSlice up in that list, and remaps those that it finds by its network with the cluster (MapEndpointsWithConfiguration in
// Liqo's shadowendpointslice-controller). They must be in the pod CIDR that the cluster declares there, so they are the pods'
// own addresses. One that is not, or that the provider has no network for, fails the whole EndpointSlice: Liqo leaves it to the
// author of the Service that there is one.
//
// All others are on a node that is not virtual, and reached through this cluster: consumers, of whom it is not known with which
// providers they are connected, pods that are not known to run at a provider, and an address that means more than one endpoint.
func connect(all []located, family discoveryv1.AddressType) {
	meanings := map[string]int{}
	for i := range all {
		if ptr.Deref(all[i].NodeName, "") == providerNodePrefix+string(forge.RemoteCluster) {
			continue // Liqo leaves out what the provider has itself.
		}
		for _, address := range all[i].Addresses {
			meanings[address]++
		}
		if all[i].root.IP != "" {
			meanings[all[i].root.IP]++
		}
	}
	for i := range all {
		at := &all[i]
		switch {
		case at.root.IP != "" && meanings[at.root.IP] == 1 && familyOf(at.root.IP) == family:
			at.Addresses = []string{at.root.IP}
		case at.NodeName != nil:
			at.NodeName = ptr.To(relayedNodePrefix + *at.NodeName)
		}
	}
}

func familyOf(address string) discoveryv1.AddressType {
	switch addr, err := netip.ParseAddr(address); {
	case err != nil:
		return ""
	case addr.Is4():
		return discoveryv1.AddressTypeIPv4
	default:
		return discoveryv1.AddressTypeIPv6
	}
}
