package kubeletapi

import (
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// requestAttributes returns the permissions that allow a request: the verb on one of the subresources of the node. Any
// one of them suffices. It follows the real kubelet (KEP-2862, pkg/kubelet/server/auth.go of Kubernetes v1.35).
func requestAttributes(node string, r *http.Request) []authorizationv1.ResourceAttributes {
	var attributes []authorizationv1.ResourceAttributes
	for _, subresource := range subresources(r.URL.Path) {
		attributes = append(attributes, authorizationv1.ResourceAttributes{
			Verb: verb(r.Method), Version: "v1", Resource: "nodes", Subresource: subresource, Name: node,
		})
	}
	return attributes
}

// verb returns "" for any other method: only a wildcard grants it.
func verb(method string) string {
	return map[string]string{
		http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update",
		http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[method]
}

func subresources(path string) []string {
	switch {
	case under(path, "/stats"):
		return []string{"stats"}
	case under(path, "/metrics"):
		return []string{"metrics"}
	case under(path, "/logs"):
		return []string{"log"}
	case under(path, "/pods"), under(path, "/runningpods"):
		return []string{"pods", "proxy"}
	default:
		return []string{"proxy"}
	}
}

func under(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}
