// Package brokernode makes Liqo's reflection serve the pods of the broker's node that are assigned to one VirtualNode
// (label brokering.liqo.io/virtual-node), without a Node of its own and without a change in Liqo.
//
// It wraps Liqo at two places. A wrapper that selects objects wraps the client, and the API server filters (LocalPods,
// Metrics). A client wrapper that rewrites or filters a watch must pass bookmarks on: client-go's informers start with
// a watch-list, and wait for its closing bookmark. A wrapper that changes objects is a transform.Lens, between the
// cache and the lister that reads it (package transform: OnOwnNode, and package endpoints).
//
// With Liqo a running pod never leaves its node, so its reflectors do not expect moves. These types handle them:
// Handover waits until another virtual kubelet has removed a pod, Forwarder creates ShadowPods and reports rejections
// by the provider cluster to the broker, and OwnPods answers for its own pods only.
package brokernode
