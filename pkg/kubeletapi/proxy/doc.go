// Package proxy is the kubelet API of the broker's node. Logs, exec, attach and port-forward are proxied to the API
// server of the provider cluster where the pod runs, with the identity that the provider gave to this cluster. The list
// of pods is the node's own; usage and metrics are those of all providers together.
//
// The proxy is net/http/httputil's. docs/designs/0016-the-kubelet-api-is-proxied.md has the reason.
package proxy
