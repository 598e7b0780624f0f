// Package broker is the virtual kubelet of one node for many provider clusters. It connects its parts and runs them:
//
//	providers  controls the provider clusters
//	leftovers  checks that a provider has removed the pods that were moved away
//	pods       assigns the pods of the node to them, and moves pods away from those that fail
//	node       owns the Node object
//	kubelet    serves the node's kubelet API, by requests to the providers
//	network    keeps the addresses of pods and endpoints, and serves the remote IPAM
//	policies   reports on PlacementPolicies
//	requeue    has the queues between these controllers
//	remote     connects to the providers
//	peering    reads Liqo's objects of one provider
//	eviction   knows why a pod must leave
//	leaving    asks providers about pods that leave
//	withdrawn  removes labels and annotations that consumers removed
//	waiting    writes why pods wait
//	podwrite   writes pods
//	podtrace   makes their spans
//	restore    counts what is assigned when a leader begins
//	lease      is the leader's lease
//
// pkg/broker/state has their state between two reads of the API, pkg/scheduler their decisions. The broker never
// forwards a pod: the virtual kubelet of a VirtualNode does, by the label that the broker writes (pkg/provider).
package broker
