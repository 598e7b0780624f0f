// Package brokernode lets Liqo's reflection serve the pods of the broker's node that are assigned to one VirtualNode (label
// brokering.liqo.io/virtual-node), without its own node and without a change in Liqo.
//
// It has two kinds of lenses. A lens that selects objects wraps the client, where the API server filters (LocalPods, Metrics).
// A client lens that rewrites or filters a watch must pass bookmarks on: client-go's informers start with a watch-list, and
// wait for its closing bookmark. A lens that changes objects is between the cache and its reader (package transform: OnOwnNode,
// and package endpoints).
//
// With Liqo a running pod never leaves its node, so its reflectors do not expect that. These handle it: Handover waits until
// another virtual kubelet has removed a pod, Forwarder creates ShadowPods and reports to the broker those that the provider
// cluster refuses, and OwnPods answers for its own pods only.
package brokernode
