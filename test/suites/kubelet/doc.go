// Package kubelet runs the end-to-end suite of virtual-kubelet, for the command suites.
package kubelet
