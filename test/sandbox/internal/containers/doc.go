// Package containers runs a real node for a cluster of a sandbox: Kubernetes' kubelet, and Debian's containerd, runc and
// CNI plugins, in a network namespace of package packets and in PID and mount namespaces of its own.
//
// All of it ends with the first process of the PID namespace, also if the sandbox is killed: the kernel ends the
// processes, shims and containers, and removes their mounts. Only cgroups stay, which RemoveCgroups removes.
// Nothing else of the machine is changed: what containerd and a kubelet keep below /run, /var/lib and /var/log is on
// filesystems of the node, and the kernel's parameters that a kubelet sets seem to be set (cmd/node).
package containers
