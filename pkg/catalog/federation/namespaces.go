package federation

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// namespaces say where pods come from, and where each cluster's identity has its rights.
type namespaces struct {
	// names are all there are.
	names sets.Set[string]
	// origins are the consumers that namespaces came from.
	origins map[string]string
	// tenants are the clusters of tenant namespaces, tenancies the other way round.
	tenants   map[string]string
	tenancies map[string]sets.Set[string]
}

func newNamespaces() *namespaces {
	return &namespaces{
		names:   sets.New[string](),
		origins: map[string]string{}, tenants: map[string]string{}, tenancies: map[string]sets.Set[string]{},
	}
}

func (n *namespaces) set(namespace *corev1.Namespace) {
	n.remove(namespace.Name)
	n.names.Insert(namespace.Name)
	cluster := placement.ConsumerOf(namespace)
	switch {
	case cluster == "":
	case placement.TenantOf(namespace) != "":
		// It bears the cluster's id, but was made here: what is in it is no business of that cluster's.
		n.tenants[namespace.Name] = cluster
		if n.tenancies[cluster] == nil {
			n.tenancies[cluster] = sets.New[string]()
		}
		n.tenancies[cluster].Insert(namespace.Name)
	default:
		n.origins[namespace.Name] = cluster
	}
}

func (n *namespaces) remove(name string) {
	n.names.Delete(name)
	delete(n.origins, name)
	cluster := n.tenants[name]
	delete(n.tenants, name)
	if n.tenancies[cluster].Delete(name); len(n.tenancies[cluster]) == 0 {
		delete(n.tenancies, cluster)
	}
}

// tenantOf is the one tenant namespace of a cluster. Liqo makes one of each, and refuses to work with several; who may
// act for a cluster is asked there, so that a second one, whoever made it, must not be taken for the first.
func (n *namespaces) tenantOf(cluster string) (string, bool) {
	of := n.tenancies[cluster]
	if len(of) != 1 {
		return "", false
	}
	return of.UnsortedList()[0], true
}
