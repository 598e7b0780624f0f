// Package kubelet is the kubelet API of the broker's node. Logs, exec, attach and port-forward are proxied to the API
// server of the provider cluster where the pod runs, with the identity that the provider gave to this cluster. The list
// of pods is the node's own; usage and metrics are those of all providers together.
//
// The proxy is net/http/httputil's. The one of kube-apiserver (k8s.io/apimachinery/pkg/util/proxy.UpgradeAwareHandler)
// trusts what is behind it: it reads the header of an answer to an upgrade without a limit, dials past the proxy that a
// kubeconfig names, and does not end an upgraded connection with the context of the request.
package kubelet
