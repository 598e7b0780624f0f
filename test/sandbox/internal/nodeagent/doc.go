// Package nodeagent is a small replacement for the kubelet, with host processes instead of containers.
//
// It owns a Node (status and lease) and runs the pods that kube-scheduler binds to it as their specs describe: command,
// arguments, environment, ServiceAccount token and other volumes. Images are not pulled: a table maps them to binaries,
// or programs of this machine replace the image's. So each binary gets exactly the configuration that its Deployment,
// of Liqo or of this project, passes to the pod.
//
// Differences to a real node, because all pods share the host's network: the pod's address is 127.0.0.1, and an Image
// may append arguments that give each process its own ports. /tmp and the volumes are private to a pod, in a mount
// namespace. Init containers, resource limits and liveness probes are not supported; a pod with an init container is
// rejected, with a message.
package nodeagent
