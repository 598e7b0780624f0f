package endpoints

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
)

// relayedNodePrefix precedes the node name of an endpoint of a Service with direct connections that is reached through
// this cluster. The rest is the name of its own node. No real node's name has a slash.
const relayedNodePrefix = "relayed.brokering.liqo.io/"

// connect makes the provider reach endpoints of a Service with direct connections over its own networks with the
// clusters where the pods run. For this, Liqo lists the addresses on virtual nodes with their clusters. The provider
// looks up all addresses of the EndpointSlice in that list, and remaps the ones it finds with its network to that
// cluster (MapEndpointsWithConfiguration in Liqo's shadowendpointslice-controller). They must be in the pod CIDR that
// the cluster declares there, so they are the pods' own addresses. An address outside that CIDR, or of a cluster that
// the provider has no network with, fails the whole EndpointSlice: with Liqo, the author of the Service must ensure
// that the networks exist.
//
// All other endpoints get a node that is not virtual, and are reached through this cluster: the endpoints of consumers,
// because it is unknown which providers they are connected with; pods that are not known to run at a provider; and an
// address that more than one endpoint has.
func connect(all []located, family discoveryv1.AddressType) {
	meanings := map[string]int{}
	for i := range all {
		if ptr.Deref(all[i].NodeName, "") == providerNodePrefix+string(forge.RemoteCluster) {
			continue // Liqo omits the provider's own endpoints.
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
