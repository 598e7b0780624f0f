// Package v1alpha1 is the API of the broker: the provider clusters it knows, the policies by which it chooses among
// them, and the limits of consumers. It also names the labels and annotations that the broker reads and writes on pods.
//
// +kubebuilder:object:generate=true
// +groupName=brokering.liqo.io
package v1alpha1

//go:generate go tool -modfile=../../tools/go.mod controller-gen object crd paths=. output:object:dir=. output:crd:dir=../../deploy/crds
