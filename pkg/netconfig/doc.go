// Package netconfig finds the address with which this cluster reaches a pod of one remote cluster.
//
// Liqo's networking module remaps the pod and external CIDRs of a peer that collide with others: the Configuration of
// that peer (networking.liqo.io/v1beta1) has the CIDRs as the peer declares them (spec.remote.cidr) and as this cluster
// sees them (status.remote.cidr), index by index. Table is that translation, a pure function. View adds whether the
// peering has the networking module at all. Watcher keeps the current View and calls back when it changes. Liqo's own
// virtual kubelet reads the Configuration only once, at start.
package netconfig
