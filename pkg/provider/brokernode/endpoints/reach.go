package endpoints

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	"github.com/liqotech/liqo/pkg/consts"
)

// Indexes of IPs by the address that they map, and of EndpointSlices by the addresses in them.
const (
	byMapped  = "brokering.liqo.io/mapped"
	byAddress = "brokering.liqo.io/address"
)

// everywhere are the CIDRs that have Liqo take all addresses for those of local pods, which it does not translate.
func everywhere() []string { return []string{"0.0.0.0/0", "::/0"} }

// reach returns the addresses under which a provider cluster reaches endpoints: those of this cluster's own pods as
// they are, which the provider translates by itself, and all others by the addresses of this cluster's external range
// that Liqo's IP objects map to them.
//
// Liqo does the same (NamespacedEndpointSliceReflector.MapEndpointIPs), but remembers every answer for as long as it
// runs, so that an address which is used again leads to where it led before; and it reflects nothing of an EndpointSlice
// in which a single address is not mapped (yet).
type reach struct {
	localPods []netip.Prefix
	// translating reports whether the clusters' networks are connected by Liqo; else addresses mean the same everywhere.
	translating func() bool
	ips         cache.Indexer
	services    corev1listers.ServiceNamespaceLister
}

// of returns the addresses under which an endpoint is reached; nil if one of them is not known.
func (r reach) of(endpoint *discoveryv1.Endpoint) []string {
	addresses := make([]string, 0, len(endpoint.Addresses))
	for _, address := range endpoint.Addresses {
		if !r.isLocal(address) {
			if address = r.mapped(endpoint, address); address == "" {
				return nil
			}
		}
		addresses = append(addresses, address)
	}
	return addresses
}

// direct reports whether an EndpointSlice is of a Service with direct connections between providers.
func (r reach) direct(endpointSlice *discoveryv1.EndpointSlice) bool {
	service, err := r.services.Get(endpointSlice.Labels[discoveryv1.LabelServiceName])
	return err == nil && service.Annotations[consts.UseDirectConnectionAnnotationKey] == "true"
}

func (r reach) isLocal(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(r.localPods, func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })
}

// mapped returns the external address of an endpoint's address: that of the IP which bears the name of its pod, as
// Liqo's do, or else of any, the first by name.
func (r reach) mapped(endpoint *discoveryv1.Endpoint, address string) string {
	found, err := r.ips.ByIndex(byMapped, address)
	if err != nil {
		return "" // There is such an index.
	}
	var best *ipamv1alpha1.IP
	ref := podOf(endpoint)
	for _, obj := range found {
		ip := obj.(*ipamv1alpha1.IP)
		if ip.DeletionTimestamp != nil || ip.Status.IP == "" {
			continue
		}
		if ref != nil && ip.Name == ref.Name {
			return string(ip.Status.IP)
		}
		if best == nil || ip.Name < best.Name {
			best = ip
		}
	}
	if best == nil {
		return ""
	}
	return string(best.Status.IP)
}

func mappedBy(obj any) ([]string, error) {
	if ip, ok := obj.(*ipamv1alpha1.IP); ok {
		return []string{string(ip.Spec.IP)}, nil
	}
	return nil, nil
}

func addressesIn(obj any) ([]string, error) {
	endpointSlice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, nil
	}
	var all []string
	for i := range endpointSlice.Endpoints {
		all = append(all, endpointSlice.Endpoints[i].Addresses...)
	}
	return all, nil
}

// withAddress returns the EndpointSlices in which the address is that an IP maps.
func withAddress(index cache.Indexer, namespace string, ip metav1.Object) []types.NamespacedName {
	object, ok := ip.(*ipamv1alpha1.IP)
	if !ok {
		return nil
	}
	return slicesBy(index, byAddress, namespace, string(object.Spec.IP))
}
