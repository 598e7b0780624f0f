// Package packets creates the network of a sandbox with real packets: a namespace that represents the internet and
// contains a bridge, a namespace for the host node of each cluster, and one for each pod.
//
//	internet        bridge ──┬── eth0 192.0.2.1  node of cluster 1 ──┬── eth0 10.244.1.2  pod
//	                         │                                       └── eth0 10.244.1.3  pod
//	                         └── eth0 192.0.2.2  node of cluster 2
//
// A node routes to its pods, with one veth pair each, and masquerades packets that leave the cluster, as the CNI plugin
// ptp does. No address and no link exist outside of the namespaces. The namespaces end with the processes that are in
// them and the process that created them. The package needs CAP_SYS_ADMIN and CAP_NET_ADMIN, and the program nft.
package packets
