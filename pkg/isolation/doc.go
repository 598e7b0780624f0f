// Package isolation restricts each consumer to its own pods: it makes the gateway of a consumer's network drop the
// consumer's packets to other addresses. Liqo installs the mapping of every address of the external CIDR in the
// gateways of all peers, and allows a peer to reach the pods of this cluster.
package isolation
