// Package reach decides under which address this cluster reaches a pod that the next cluster has forwarded: by the network
// with the cluster where the pod runs, by the network with the next cluster, or through the next cluster's external range.
package reach
