// Package alive keeps the Node of a broker alive while no broker does so and pods of the Node are running. If the lease
// of a Node is not renewed, Kubernetes assumes that its pods are lost: it removes them from Services, and evicts them
// after 300 s. So every virtual kubelet that serves pods of the Node renews the lease when it detects that the broker
// does not.
package alive
