// Package provider is the virtual kubelet of one Liqo VirtualNode: it forwards the pods of that node to one remote
// cluster, a "provider cluster" in Liqo's words, by composing the packages of Liqo v1.2.0.
//
// Run tells the story in order: win the lease of the node, connect to the remote cluster, compose the reflection
// (Compose, the one place where clients and reflectors meet, so that a lens can be put in), then serve the kubelet API,
// the metrics and the Node.
//
// The order of the steps and every name that another process sees (leases, field managers, metrics, event sources) are
// those of Liqo's own binary (cmd/virtual-kubelet/root), so that either can take over from the other.
//
// One remote cluster per process: Liqo keeps the identity of the virtual kubelet (forge.Init) and the outcome of its
// second leader election (leaderelection.IsLeader) in package variables. Compose and runReflectionElection are the only
// places that touch them.
package provider
