// Package volumes makes the PersistentVolumes of claims that kube-scheduler gave to the broker's Node, completes their
// expansion, and deletes them after their claims. A PersistentVolume there stands for a volume that a provider makes:
// package pods writes on it at which one, when it assigns the first pod of the claim.
package volumes
