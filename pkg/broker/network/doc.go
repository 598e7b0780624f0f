// Package network keeps the addresses in Liqo's networking module: the IP objects of pods and of consumers' endpoints,
// and the remote IPAM, which consumers ask for the addresses of forwarded pods.
package network
