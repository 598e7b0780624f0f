// Package namespacemap decides which namespaces of this cluster are offloaded to a remote one. It has no dependencies,
// because the virtual kubelets of Liqo v1 and v0.x have NamespaceMaps of different types.
//
// Liqo writes the namespaces to offload into spec.desiredMapping of a NamespaceMap (namespaceoffloading-controller).
// The remote cluster makes them, and reports them in the status, which Liqo's replicator copies unchanged
// (updateObjectStatus in internal/crdReplicator/reflection/handler.go, v1.2.0). So the remote cluster controls the
// status: it may name namespaces that this cluster has not offloaded, such as kube-system, and Liqo's virtual kubelet
// would reflect the Secrets in them.
package namespacemap

import "strings"

// tenantNamespaces is the prefix of tenant namespaces (pkg/tenantNamespace of Liqo).
const tenantNamespaces = "liqo-tenant-"

// Asked reports whether this cluster has requested a namespace, by the spec.desiredMapping of a map in a tenant
// namespace, under the name that the remote cluster reports. A tenant namespace, which has the credentials of the
// peers, is never offloaded.
func Asked(desired map[string]string, tenant, namespace, remote string) bool {
	name, asked := desired[namespace]
	return asked && name == remote && namespace != tenant && !strings.HasPrefix(namespace, tenantNamespaces)
}
