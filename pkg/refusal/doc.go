// Package refusal is the contract by which the virtual kubelet of a VirtualNode reports to the broker that its provider
// cluster does not take a pod: Report writes it, Of reads it.
//
// A refusal is a condition in the status of the pod. The type of the condition ends with the name of the VirtualNode, so
// that a refusal which another VirtualNode reported before is never read as one of the VirtualNode that has the pod now.
// The reason is one of Reasons. After QuotaExceeded a colon and the name of the resource follow, as in QuotaExceeded:cpu.
// Older virtual kubelets report no resource. The message is for people; no program reads it.
package refusal
