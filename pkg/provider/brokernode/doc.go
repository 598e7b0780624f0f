// Package brokernode lets Liqo's reflection serve, instead of a node of its own, those pods of the broker's node that
// are assigned to one VirtualNode (label brokering.liqo.io/virtual-node), without a change in Liqo.
//
// Its lenses are of two kinds. One that chooses which objects are seen sits on the client, where the API server does
// the filtering (LocalPods, Metrics, Refusals.ShadowPods, which only watches what is written). One that shows objects
// otherwise than they are sits between the cache and its reader, the lister (Endpoints, OnOwnNode), for the reason
// given in docs/designs/0001.
//
// What Liqo's reflectors do not expect, since a pod never leaves a node of Liqo's while it lives, is done around them:
// Handover waits until another virtual kubelet has let go of a pod, Refusals tells the broker what this one cannot
// run, and OwnPods answers for its own pods only.
package brokernode
