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

// The indexes of IPs by the address that they map, and of EndpointSlices by the addresses in them.
const (
	byMapped  = "brokering.liqo.io/mapped"
	byAddress = "brokering.liqo.io/address"
)

// everywhere returns CIDRs that contain all addresses. With them Liqo treats all addresses as addresses of local pods,
// which it does not translate.
func everywhere() []string { return []string{"0.0.0.0/0", "::/0"} }

// reach returns the addresses with which a provider cluster reaches endpoints. The addresses of this cluster's own pods
// stay unchanged: the provider translates them itself. All others become addresses of this cluster's external range, to
// which Liqo's IP objects map them.
//
// Liqo does the same (NamespacedEndpointSliceReflector.MapEndpointIPs), but has two limitations. It caches every answer
// for as long as it runs, so a reused address leads to its previous target. And it does not reflect an EndpointSlice at
// all if a single address is not mapped (yet).
type reach struct {
	localPods []netip.Prefix
	// translating reports whether Liqo connects the clusters' networks. If not, an address is the same in all clusters.
	translating func() bool
	ips         cache.Indexer
	services    corev1listers.ServiceNamespaceLister
}

// of returns the addresses with which an endpoint is reached; nil if one of them is unknown.
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

// direct reports whether an EndpointSlice belongs to a Service with direct connections between providers.
func (r reach) direct(endpointSlice *discoveryv1.EndpointSlice) bool {
	service, err := r.services.Get(endpointSlice.Labels[discoveryv1.LabelServiceName])
	return err == nil && service.Annotations[consts.UseDirectConnectionAnnotationKey] == "true"
}

func (r reach) isLocal(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(r.localPods, func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })
}

// mapped returns the external address of an endpoint's address. It prefers the IP with the name of the endpoint's pod,
// as Liqo names them; otherwise it uses the first IP by name.
func (r reach) mapped(endpoint *discoveryv1.Endpoint, address string) string {
	found, err := r.ips.ByIndex(byMapped, address)
	if err != nil {
		return "" // The index exists.
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

// withAddress returns the EndpointSlices that contain the address that an IP maps.
func withAddress(index cache.Indexer, namespace string, ip metav1.Object) []types.NamespacedName {
	object, ok := ip.(*ipamv1alpha1.IP)
	if !ok {
		return nil
	}
	return slicesBy(index, byAddress, namespace, string(object.Spec.IP))
}
