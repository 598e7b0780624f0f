// Package kubeletapi serves the kubelet API of a virtual node: logs, exec, attach, port-forward, the list of pods,
// statistics and metrics, all of which Liqo's pod reflector fetches from the remote cluster.
//
// It differs from Liqo's own (cmd/virtual-kubelet/root/http.go), which answers anybody who reaches the port: every
// caller is authenticated and authorised as the real kubelet does it, with a client certificate of the cluster's CA or
// a token that the API server reviews, and then a SubjectAccessReview on the node's subresources.
package kubeletapi
