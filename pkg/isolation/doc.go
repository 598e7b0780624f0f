// Package isolation keeps each consumer to its own pods: it has the gateway of a consumer's network drop what the consumer sends to
// other addresses. Liqo installs the mapping of every address of the external CIDR in the gateways of all peers, and lets a
// peer reach the pods of this cluster.
package isolation
