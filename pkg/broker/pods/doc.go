// Package pods assigns the pods of the broker's node to provider clusters, and moves them away from those that fail.
//
// A pod passes through these functions of Controller, one step each:
//
//	Reconcile          reads the pod and chooses the step
//	assign             decides, and writes the VirtualNode label (assign.go)
//	reconcileAssigned  measures it; must it leave? (assigned.go, package eviction) Has it ended there? (package termination)
//	evict              removes the label, which removes the pod from its provider (move.go)
//	waits              requests the write of the reason why it waits, by separate workers (package podconditions)
//	release            waits until it no longer exists there, and assigns it again (move.go)
//
// The virtual kubelet of a VirtualNode selects its pods by the label; it forwards them and reports their status
// (pkg/provider). State that must survive a restart is in the API.
package pods
