package state

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/informers"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
)

// sources are the objects that providers are translated from. Its lock is never held during a decision.
type sources struct {
	// mu guards all below.
	mu        sync.Mutex
	providers map[string]*v1alpha1.ProviderCluster
	// virtualNodes and namespaceMaps are by the provider that they name.
	virtualNodes  *informers.Groups[*offloadingv1beta1.VirtualNode]
	namespaceMaps *informers.Groups[*offloadingv1beta1.NamespaceMap]
	// tenants are the providers of their tenant namespaces.
	tenants map[string]string
	// changed are the providers to translate before the next decision.
	changed sets.Set[string]
}

// source has the objects that one provider is translated from; the provider is nil if there is none.
type source struct {
	provider      *v1alpha1.ProviderCluster
	virtualNodes  []*offloadingv1beta1.VirtualNode
	namespaceMaps []*offloadingv1beta1.NamespaceMap
}

func newSources() *sources {
	return &sources{
		providers:     map[string]*v1alpha1.ProviderCluster{},
		virtualNodes:  informers.NewGroups[*offloadingv1beta1.VirtualNode](),
		namespaceMaps: informers.NewGroups[*offloadingv1beta1.NamespaceMap](),
		tenants:       map[string]string{}, changed: sets.New[string](),
	}
}

// takeChanged returns the providers that have changed since the last call.
func (s *sources) takeChanged() map[string]source {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := make(map[string]source, len(s.changed))
	for id := range s.changed {
		taken[id] = source{
			provider: s.providers[id], virtualNodes: ownedBy(s.tenants, id, s.virtualNodes.Of(id)),
			namespaceMaps: ownedBy(s.tenants, id, s.namespaceMaps.Of(id)),
		}
	}
	s.changed = sets.New[string]()
	return taken
}

// ownedBy returns the objects that are in the tenant namespace of a cluster. Objects in another cluster's tenant
// namespace do not count, because that cluster can write them.
func ownedBy[T client.Object](tenants map[string]string, id string, objects []T) (own []T) {
	for _, o := range objects {
		if tenants[o.GetNamespace()] == id {
			own = append(own, o)
		}
	}
	return own
}

// Provider returns the object of a provider, nil if there is none, and its translation, without namespaces.
func (s *sources) Provider(id string) (*v1alpha1.ProviderCluster, scheduler.Provider) {
	s.mu.Lock()
	pc, virtualNodes := s.providers[id], ownedBy(s.tenants, id, s.virtualNodes.Of(id))
	s.mu.Unlock()
	if pc == nil {
		return nil, scheduler.Provider{}
	}
	return pc, placement.Provider(pc, virtualNodes, nil)
}

// SetProvider adds a provider, or replaces the one of its name.
func (s *sources) SetProvider(pc *v1alpha1.ProviderCluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.providers[pc.Name] = pc
	s.changed.Insert(pc.Name)
}

// RemoveProvider removes a provider, if there is one.
func (s *sources) RemoveProvider(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.providers, name.Name)
	s.changed.Insert(name.Name)
}

// SetVirtualNode adds a VirtualNode, or replaces the one of its name. It returns the providers that this changes.
func (s *sources) SetVirtualNode(vn *offloadingv1beta1.VirtualNode) (providers []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	providers = s.virtualNodes.Set(client.ObjectKeyFromObject(vn), string(vn.Spec.ClusterID), vn)
	s.changed.Insert(providers...)
	return providers
}

// RemoveVirtualNode removes a VirtualNode, if there is one. It returns the provider that this changes.
func (s *sources) RemoveVirtualNode(name types.NamespacedName) (providers []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	providers = s.virtualNodes.Remove(name)
	s.changed.Insert(providers...)
	return providers
}

// SetNamespaceMap adds a NamespaceMap, or replaces the one of its name.
func (s *sources) SetNamespaceMap(m *offloadingv1beta1.NamespaceMap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Insert(s.namespaceMaps.Set(client.ObjectKeyFromObject(m), placement.OffloadsTo(m), m)...)
}

// RemoveNamespaceMap removes a NamespaceMap, if there is one.
func (s *sources) RemoveNamespaceMap(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Insert(s.namespaceMaps.Remove(name)...)
}

// SetNamespace adds a namespace, or replaces the one of its name. It returns the providers that this changes.
func (s *sources) SetNamespace(namespace *corev1.Namespace) (providers []string) {
	return s.setTenant(namespace.Name, placement.TenantOf(namespace))
}

// RemoveNamespace removes a namespace, if there is one. It returns the provider that this changes.
func (s *sources) RemoveNamespace(name types.NamespacedName) (providers []string) {
	return s.setTenant(name.Name, "")
}

// setTenant sets the cluster whose tenant namespace that is; "" is none. It returns the clusters whose namespaces
// change.
func (s *sources) setTenant(namespace, cluster string) (clusters []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.tenants[namespace]
	if before == cluster {
		return nil
	}
	for _, id := range []string{before, cluster} {
		if id != "" {
			clusters = append(clusters, id)
		}
	}
	s.changed.Insert(clusters...)
	if delete(s.tenants, namespace); cluster != "" {
		s.tenants[namespace] = cluster
	}
	return clusters
}
