// Package reflection tests the virtual kubelet's reflection between fake clusters that validate pods and statuses with
// the code of Kubernetes' API server. It shows whether an API server would accept the written objects.
package reflection
