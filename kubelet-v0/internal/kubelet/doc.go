// Package kubelet is the virtual kubelet of one VirtualNode of Liqo v0.x: it forwards the pods of that node to one
// remote cluster, by composing the packages of Liqo v0.9.4. It shares its process with the virtual kubelet of Liqo v1
// (pkg/provider/process). The reflection is Liqo's own (pkg/virtualKubelet/provider), with one difference: if there is
// a remote IPAM, it provides the addresses of pods that the remote cluster has forwarded.
//
// One remote cluster per process: Liqo keeps the identity of the virtual kubelet (forge.Init) and the outcome of its
// leader election (leaderelection.IsLeader) in package variables.
package kubelet
