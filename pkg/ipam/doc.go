// Package ipam is the remote IPAM: a consumer cluster learns from the broker under which address it reaches, through the
// broker, a pod that the broker has forwarded to a provider. The protocol is that of Liqo v0.x's IPAM (package wire), so
// that either side can be Liqo's own.
//
// Server answers consumers, each about its own pods; what it answers comes from a Directory. Client asks on behalf of a
// virtual kubelet, and never makes it wait: what is not known yet is looked up in the background.
//
// An answer of Server is an address as the broker sees it, of its external CIDR. The consumer translates it by its
// network Configuration of the broker, as it translates every address of the broker.
package ipam
