// Package offloaded tells which namespaces of this cluster are offloaded to a remote one.
//
// Liqo writes which namespaces are to be offloaded into spec.desiredMapping of a NamespaceMap (namespaceoffloading-controller). The
// remote cluster makes them, and reports them in the status, which Liqo's replicator copies as it is (updateObjectStatus in
// internal/crdReplicator/reflection/handler.go, v1.2.0). So the status is the remote cluster's text: it may name namespaces that
// this cluster has not offloaded, such as kube-system, and Liqo's virtual kubelet would reflect the Secrets in them.
package offloaded

import (
	"strings"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
)

// tenantNamespaces is how the names of tenant namespaces begin (pkg/tenantNamespace of Liqo).
const tenantNamespaces = "liqo-tenant-"

// Is reports whether a namespace is offloaded: this cluster asked for it, and the remote one has made it under the name that it
// was asked for. A tenant namespace, which has the credentials of the peers, never is.
func Is(m *offloadingv1beta1.NamespaceMap, namespace string) bool {
	remote, asked := m.Spec.DesiredMapping[namespace]
	at := m.Status.CurrentMapping[namespace]
	return asked && at.RemoteNamespace == remote && at.Phase == offloadingv1beta1.MappingAccepted &&
		namespace != m.Namespace && !strings.HasPrefix(namespace, tenantNamespaces)
}

// Only returns a map in whose status only those namespaces are Accepted that are offloaded. Namespaces in other phases stay: Liqo
// starts nothing for them.
func Only(m *offloadingv1beta1.NamespaceMap) *offloadingv1beta1.NamespaceMap {
	only := m
	for namespace, at := range m.Status.CurrentMapping {
		if at.Phase != offloadingv1beta1.MappingAccepted || Is(m, namespace) {
			continue
		}
		if only == m {
			only = m.DeepCopy() // It may be an object of a cache.
		}
		delete(only.Status.CurrentMapping, namespace)
	}
	return only
}
