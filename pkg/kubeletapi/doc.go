// Package kubeletapi serves the kubelet API of a virtual node: logs, exec, attach, port-forward, the list of pods,
// statistics and metrics. A virtual kubelet answers with Liqo's pod reflector (NewHandler), the broker with
// pkg/kubeletapi/proxy.
//
// Liqo's own kubelet API (cmd/virtual-kubelet/root/http.go) answers every caller. This one authenticates and authorizes
// its callers as the real kubelet does: by a client certificate of the cluster's CA, or a token that the API server
// reviews, and then a SubjectAccessReview on the node's subresources.
package kubeletapi
