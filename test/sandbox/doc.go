// Package sandbox runs a federation of real Kubernetes clusters with real Liqo
// on one machine, on loopback and without a container engine: consumer clusters peered
// with a broker cluster, the broker peered with provider clusters.
//
// Real are etcd, kube-apiserver, kube-controller-manager, kube-scheduler, Liqo's own components under their own
// ServiceAccounts with the objects of Liqo's own Helm chart, the peerings, and the virtual kubelets with exactly the
// arguments that liqo-controller-manager gives them. Not real, unless Options.Packets is set, are the pods of provider
// clusters (KWOK) and the network between clusters (none, or with Options.Networking Liqo's addressing without
// tunnels). With Options.Containers a real kubelet runs all pods, also the components, as containers. Otherwise the
// node agent of each cluster runs the components as host processes (internal/nodeagent).
package sandbox
