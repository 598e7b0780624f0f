package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConsumerCluster is what administrators decide about a cluster that consumes the broker's resources; its name is the
// cluster's id. The broker reads it only. A consumer without one has no limit.
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

// ConsumerClusterSpec is what an administrator sets for a consumer.
type ConsumerClusterSpec struct {
	// Limits are the most that all ResourceSlices of the consumer together are granted by the broker's offers. A resource
	// that they do not name has no limit.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// ConsumerClusterList is a list of ConsumerClusters.
//
// +kubebuilder:object:root=true
type ConsumerClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ConsumerCluster `json:"items"`
}
