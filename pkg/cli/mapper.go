package cli

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// NewMapper knows the kinds of object that people ask about, so that the API server need not be asked about them first.
func NewMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, known := range []struct {
		group schema.GroupVersion
		scope meta.RESTScope
		kinds []string
	}{
		{v1alpha1.GroupVersion(), meta.RESTScopeRoot, []string{"ProviderCluster", "PlacementPolicy"}},
		{corev1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"Namespace", "PersistentVolume"}},
		{corev1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"Pod", "PersistentVolumeClaim"}},
		{liqov1beta1.GroupVersion, meta.RESTScopeRoot, []string{"ForeignCluster"}},
		{offloadingv1beta1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"VirtualNode", "NamespaceMap"}},
	} {
		for _, kind := range known.kinds {
			mapper.Add(known.group.WithKind(kind), known.scope)
		}
	}
	return mapper
}
