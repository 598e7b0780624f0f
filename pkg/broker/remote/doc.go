// Package remote connects the broker to the provider clusters, with the identity of each VirtualNode.
package remote
