// Package ipam is the remote IPAM: a consumer cluster asks the broker for the address with which it reaches, through
// the broker, a pod that the broker has forwarded to a provider. The protocol is the protocol of Liqo v0.x's IPAM
// (package wire), so either side can be Liqo's own.
//
// Server answers consumers, each about its own pods; the answers come from a Directory. Client asks on behalf of a
// virtual kubelet, and never blocks it: it looks up unknown addresses in the background.
//
// An answer of Server is an address of the broker's external CIDR, as the broker sees it. The consumer translates it
// with its network Configuration of the broker, as it translates every address of the broker.
package ipam
