// Package nodeagent is a small node agent: what the kubelet is to a node, with
// host processes in place of containers.
//
// It owns a Node (status and lease) and runs the pods that kube-scheduler binds
// to it as their specs say: command, arguments, environment, ServiceAccount
// token and other volumes. Images are not pulled but looked up in a table of
// binaries, or the programs of this machine stand in for those of an image. So
// what a Deployment of Liqo, or of this project, passes to its pod is what the
// binary really gets.
//
// What differs from a real node, because all pods share the host's network:
// the pod's address is 127.0.0.1, and an Image may append arguments that give
// each process ports of its own. /tmp and the volumes are private to a pod, by
// a mount namespace. Init containers, resource limits and liveness probes are
// not supported; a pod with an init container is refused, with a message.
package nodeagent
