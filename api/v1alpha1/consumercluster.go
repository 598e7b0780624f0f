package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConsumerCluster sets the share and the limits of a consumer, a cluster that gets resources from the broker. Its name is
// the id of the cluster. Administrators create it, and the broker writes its status. A consumer without a ConsumerCluster
// has the weight 1, no guarantee and no limits.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ccl,categories=liqo
// +kubebuilder:printcolumn:name="WEIGHT",type=integer,JSONPath=`.spec.weight`
// +kubebuilder:printcolumn:name="SHARE",type=string,JSONPath=`.status.share`,description="dominant share, divided by the weight"
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.used.cpu`,description="requested by its pods"
// +kubebuilder:printcolumn:name="CPU-GRANTED",type=string,JSONPath=`.status.granted.cpu`
// +kubebuilder:printcolumn:name="CPU-LIMIT",type=string,JSONPath=`.spec.limits.cpu`
// +kubebuilder:printcolumn:name="MEMORY",type=string,JSONPath=`.status.used.memory`,description="requested by its pods"
// +kubebuilder:printcolumn:name="MEMORY-GRANTED",type=string,JSONPath=`.status.granted.memory`
// +kubebuilder:printcolumn:name="MEMORY-LIMIT",type=string,JSONPath=`.spec.limits.memory`
// +kubebuilder:printcolumn:name="PODS",type=integer,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type ConsumerCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ConsumerClusterSpec `json:"spec,omitempty"`
	// +optional
	Status ConsumerClusterStatus `json:"status,omitempty"`
}

// ConsumerClusterSpec is set by an administrator.
type ConsumerClusterSpec struct {
	// Weight is how large the share of the consumer is, compared with the weights of others (default 1). As soon as one
	// ConsumerCluster has a weight or a guarantee, the aggregator divides the sum of the providers by shares; before, the
	// oldest ResourceSlice goes first. Waiting pods are always tried by shares.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Weight *int32 `json:"weight,omitempty"`
	// Guaranteed are resources that the consumer is granted before the rest is divided by weight. Others may be granted
	// the part that its ResourceSlices do not request, until they request it.
	// +optional
	Guaranteed corev1.ResourceList `json:"guaranteed,omitempty"`
	// Limits is the maximum of the resources that the broker's offers grant to all ResourceSlices of the consumer
	// together. A resource that is not listed has no limit.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// Budget is the cost of the consumer's pods in a month, in UTC, from which on its new pods wait. Running pods stay. Costs
	// in other currencies do not count. The broker needs a ledger (--ledger) for that.
	// +optional
	Budget *Money `json:"budget,omitempty"`
}

// ConsumerClusterStatus is written by the broker's aggregator.
type ConsumerClusterStatus struct {
	// ObservedGeneration is the generation of the spec by which the status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Guaranteed is the part of the guarantee that exists: less than in the spec if the providers grant less than all
	// guarantees together.
	// +optional
	Guaranteed corev1.ResourceList `json:"guaranteed,omitempty"`
	// Granted is the sum of the offers to its ResourceSlices.
	// +optional
	Granted corev1.ResourceList `json:"granted,omitempty"`
	// Used are the requests of its pods that have not ended.
	// +optional
	Used corev1.ResourceList `json:"used,omitempty"`
	// Borrowed is granted beyond the guarantee, Lent is guaranteed and not granted to it.
	// +optional
	Borrowed corev1.ResourceList `json:"borrowed,omitempty"`
	// +optional
	Lent corev1.ResourceList `json:"lent,omitempty"`
	// Reclaimed is in use beyond the grant, and requested by others with a right to it. Pods leave after the time of
	// --reclaim-after.
	// +optional
	Reclaimed corev1.ResourceList `json:"reclaimed,omitempty"`
	// Share is the dominant share: the largest, over the resources, of the used amount beyond the guarantee divided by the
	// sum that the providers grant, and divided by the weight; "0.250".
	// +optional
	Share string `json:"share,omitempty"`
	// DominantResource is the resource of the dominant share; empty if the consumer uses only guaranteed resources.
	// +optional
	DominantResource corev1.ResourceName `json:"dominantResource,omitempty"`
	// Pods is the number of its pods that have not ended.
	// +optional
	Pods int64 `json:"pods,omitempty"`
}

// DefaultWeight is the weight of a consumer without one.
const DefaultWeight = 1

// IsShared reports whether the spec has the sum of the providers divided by shares.
func (s *ConsumerClusterSpec) IsShared() bool { return s.Weight != nil || len(s.Guaranteed) > 0 }

// ConsumerClusterList is a list of ConsumerClusters.
//
// +kubebuilder:object:root=true
type ConsumerClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ConsumerCluster `json:"items"`
}
