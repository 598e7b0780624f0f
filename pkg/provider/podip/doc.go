// Package podip resolves the addresses of the pods that a virtual kubelet forwards: the address with which this cluster
// reaches a remote pod, and the place where the pod runs.
//
// Addresses.Namespaced wraps Liqo's pod reflector of a namespace. From the outside in: the repairer replaces an IP of a
// previous address (repair.go); the locator writes the annotations with the place where the pod runs, together with its
// address (locate.go, write.go); and the lister of the remote pods shows them with the addresses of this cluster
// (show.go). The lister translates, not the watch of the client: an informer passes an event whose resourceVersion has
// not changed only to handlers that are due for a resync, so a pod that a watch emitted again would be lost. A lister
// also needs no second copy of the pods.
//
// Ways decide the address of a pod that the next cluster has forwarded (ways.go): through the network with the cluster
// where the pod runs, through the network with the next cluster, or through the next cluster's external range.
package podip
