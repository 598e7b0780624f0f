// Package refusal is the contract by which the virtual kubelet of a VirtualNode reports to the broker that its provider
// cluster rejects a pod: Report writes it, Of reads it.
//
// A refusal is a condition in the status of the pod. The type of the condition ends with the name of the VirtualNode,
// so that a refusal which another VirtualNode reported before is never read as a refusal by the pod's present
// VirtualNode. The reason is one of Reasons. QuotaExceeded may be followed by a colon and the name of the resource, as
// in QuotaExceeded:cpu. Older virtual kubelets report no resource. The message is for people; no program reads it.
package refusal
