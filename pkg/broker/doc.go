// Package broker is the virtual kubelet of one node for many provider clusters. It connects its parts and runs them:
//
//	providers           controls the provider clusters
//	pods                assigns the pods of the node to them, and moves pods away from those that fail
//	pods/eviction       decides why a pod must leave its provider
//	pods/podconditions  writes the reasons why pods wait
//	pods/podtrace       makes the spans of pods
//	podpatch            writes pods
//	termination         asks providers about the pods that leave them (Checker), and checks that a provider that was
//	                    unreachable has removed the pods that were moved away (Cleaner)
//	node                owns the Node object
//	network             keeps the addresses of pods and endpoints, and serves the remote IPAM
//	policies            reports on PlacementPolicies
//	grants              reads what consumers were granted
//	requeue             has the queues between these controllers
//	remote              connects to the providers
//	peering             reads Liqo's objects of one provider
//	metadatasync        removes labels and annotations that consumers removed
//	restore             counts the assigned pods when a leader begins
//	lease               is the leader's lease
//	claim               claims the cluster for one installation
//
// Package state (pkg/broker/state) keeps the broker's state between two reads of the API; pkg/scheduler decides. The
// broker never forwards a pod: the virtual kubelet of a VirtualNode does, by the label that the broker writes
// (pkg/provider).
package broker
