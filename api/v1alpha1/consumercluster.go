package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConsumerCluster sets limits for a consumer, a cluster that gets resources from the broker. Its name is the id of the
// cluster. Administrators create it; the broker only reads it. A consumer without a ConsumerCluster has no limits.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ccl,categories=liqo
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.limits.cpu`,description="limit"
// +kubebuilder:printcolumn:name="MEMORY",type=string,JSONPath=`.spec.limits.memory`,description="limit"
// +kubebuilder:printcolumn:name="PODS",type=string,JSONPath=`.spec.limits.pods`,description="limit"
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type ConsumerCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ConsumerClusterSpec `json:"spec,omitempty"`
}

// ConsumerClusterSpec is set by an administrator.
type ConsumerClusterSpec struct {
	// Limits is the maximum of the resources that the broker's offers grant to all ResourceSlices of the consumer
	// together. A resource that is not listed has no limit.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// Budget is the cost of the consumer's pods in a month, in UTC, from which on its new pods wait. Running pods stay. Costs
	// in other currencies do not count. The broker needs a ledger (--ledger) for that.
	// +optional
	Budget *Money `json:"budget,omitempty"`
}

// ConsumerClusterList is a list of ConsumerClusters.
//
// +kubebuilder:object:root=true
type ConsumerClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ConsumerCluster `json:"items"`
}
