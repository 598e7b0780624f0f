// Package provider is the virtual kubelet of one Liqo VirtualNode: it forwards the pods of that node to one remote
// cluster, by composing the packages of Liqo v1.2.0. "Provider" in the name of this package is virtual-kubelet's word
// for the backend that runs the pods of a node. In all other packages a provider is a provider cluster, which is Liqo's
// word.
//
// Run has the steps in order: win the lease of the node, connect to the remote cluster, compose the reflection, then
// serve the kubelet API, the metrics and the Node. newReflectors has each of Liqo's reflectors with its wrappers:
// addresses of pods (package podip), pods of a broker's node (package brokernode), retries (package retry). Package
// reflector/transform has the listers and caches that those reflectors read, package connect their clients, package
// election the leases.
//
// The order of the steps and every name that another process sees (leases, field managers, metrics, event sources) are
// the same as in Liqo's own binary (cmd/virtual-kubelet/root), so that either binary can take over from the other.
//
// One remote cluster per process: Liqo keeps the identity of the virtual kubelet (forge.Init) and the outcome of its
// second leader election (leaderelection.IsLeader) in package variables. Compose and package election are the only
// places that touch them.
package provider
