package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion returns the group and version of this API.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "brokering.liqo.io", Version: "v1alpha1"}
}

// AddToScheme registers the types of this API.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(),
		&ProviderCluster{}, &ProviderClusterList{}, &PlacementPolicy{}, &PlacementPolicyList{},
		&ConsumerCluster{}, &ConsumerClusterList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
