// Package kubelet runs virtual-kubelet's own suite against the virtual node that the environment names; go run ./suites does so.
package kubelet
