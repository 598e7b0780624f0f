// Package untrusted bounds the effects of another cluster's API server on the clients here. A provider cluster may be
// hostile, and its API server answers the broker and the virtual kubelets.
package untrusted
