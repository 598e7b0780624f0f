package view

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// namespaces are the consumers of namespaces, and the tenant namespaces of clusters.
type namespaces struct {
	// names has all namespaces.
	names sets.Set[string]
	// origins are the consumers that namespaces came from.
	origins map[string]string
	// tenants are the clusters of tenant namespaces; byTenant is the reverse.
	tenants  map[string]string
	byTenant map[string]sets.Set[string]
}

func newNamespaces() *namespaces {
	return &namespaces{
		names:   sets.New[string](),
		origins: map[string]string{}, tenants: map[string]string{}, byTenant: map[string]sets.Set[string]{},
	}
}

func (n *namespaces) set(namespace *corev1.Namespace) {
	n.remove(namespace.Name)
	n.names.Insert(namespace.Name)
	cluster := placement.TenantOf(namespace)
	if cluster != "" {
		n.tenants[namespace.Name] = cluster
		if n.byTenant[cluster] == nil {
			n.byTenant[cluster] = sets.New[string]()
		}
		n.byTenant[cluster].Insert(namespace.Name)
	}
	if consumer := placement.ConsumerOf(namespace); consumer != "" {
		n.origins[namespace.Name] = consumer
	}
}

func (n *namespaces) remove(name string) {
	n.names.Delete(name)
	delete(n.origins, name)
	cluster := n.tenants[name]
	delete(n.tenants, name)
	if n.byTenant[cluster].Delete(name); len(n.byTenant[cluster]) == 0 {
		delete(n.byTenant, cluster)
	}
}

// tenantOf returns the only tenant namespace of a cluster. Liqo makes one for each cluster, and does not work with
// several. Rights to act for a cluster are checked there, so a second one, whose author is not known, must not count.
func (n *namespaces) tenantOf(cluster string) (string, bool) {
	of := n.byTenant[cluster]
	if len(of) != 1 {
		return "", false
	}
	return of.UnsortedList()[0], true
}
