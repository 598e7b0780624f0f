// Package alive keeps the Node of a broker alive while no broker does and pods of it run. Kubernetes takes the pods of a Node whose
// lease is not renewed for lost: it removes them from Services, and evicts them after 300 s. So every virtual kubelet that serves
// pods of the Node renews the lease when it finds that the broker does not.
package alive
