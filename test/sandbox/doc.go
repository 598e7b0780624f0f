// Package sandbox runs a federation of real Kubernetes clusters with real Liqo
// on one machine, on loopback and without containers: consumer clusters peered
// with a broker cluster, the broker peered with provider clusters.
//
// What is real: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// Liqo's own components under their own ServiceAccounts with the objects of
// Liqo's own Helm chart, the peerings, and the virtual kubelets with exactly
// the arguments that liqo-controller-manager gives them. What is not: pods of
// provider clusters (KWOK), the network between clusters (none, or with
// Options.Networking Liqo's addressing without tunnels), and the node agent of
// each cluster, which runs containers as host processes (internal/nodeagent).
package sandbox
