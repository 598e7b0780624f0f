// Package pods assigns the pods of the broker's node to provider clusters, and moves them away from those that fail.
//
// The way of a pod goes through these functions of Controller, each of which takes it one step further:
//
//	Reconcile          reads the pod and chooses the step
//	assign             decides, and writes the VirtualNode label (assign.go)
//	reconcileAssigned  measures it; must it leave? (assigned.go, evict.go) Has it ended there? (pkg/broker/termination)
//	evict              takes the label away, which removes the pod from its provider (move.go)
//	waits              has it written why it waits, by workers of their own (pkg/broker/pods/podconditions)
//	release            waits until nothing of it is there any more, and assigns it again (move.go)
//
// The label is what the virtual kubelet of a VirtualNode selects its pods by; it forwards them and reports their status
// (pkg/provider). What must survive a restart is in the API.
package pods
