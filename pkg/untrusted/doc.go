// Package untrusted bounds what the API server of another cluster can do to the clients here. A provider cluster may be
// hostile, and its API server answers the broker and the virtual kubelets.
package untrusted
