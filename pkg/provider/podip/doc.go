// Package podip is about the addresses of the pods that a virtual kubelet forwards: under which address this cluster reaches a remote pod,
// and where the pod runs.
//
// Addresses.Namespaced wraps Liqo's pod reflector of a namespace. From the outside in: an IP of a previous address is repaired
// (repair.go), the annotations of the local pod with the place where it runs are written with its address (locate.go, write.go), and
// the lister of the remote pods shows them with the address of this cluster (show.go). The translation is on the lister, not on the
// watch of the client: an informer passes an event on whose resourceVersion has not changed only to handlers that are due for a
// resync, so a pod that a watch emitted again would be lost; and no second copy of the pods is needed.
//
// Ways decide the address of a pod that the next cluster has forwarded (ways.go): by the network with the cluster where the pod runs, by
// the network with the next cluster, or through the next cluster's external range.
package podip
