// Package proxy is the kubelet API of the broker's node. Logs, exec, attach and port-forward are proxied to the API
// server of the provider cluster where the pod runs, with the identity that the provider gave to this cluster. The list
// of pods comes from the node itself; usage and metrics come from all providers together.
//
// The proxy uses net/http/httputil. docs/designs/0016-the-kubelet-api-is-proxied.md has the reason.
package proxy
