// Package controlplane runs one Kubernetes control plane (etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler) as host processes on loopback.
package controlplane
