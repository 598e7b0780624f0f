package podip

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// show returns the remote pod with its address in this cluster. While that address is not known yet, the pod keeps the
// address that the local pod already shows, if it belongs to the same location: a restart during a reconfiguration of
// the network removes no endpoint. A pod without an address cannot be reached, so it is not Ready. A pod with the
// network of its node has the node's address, which is not shown.
func (n *namespace) show(remote *corev1.Pod) *corev1.Pod {
	local, _ := n.local.Get(remote.Name)
	if n.status != nil && local != nil {
		remote = n.status(local, remote)
	}
	if remote.Status.PodIP == "" {
		return withAddress(remote, "")
	}
	if placement.Terminal(remote) && local != nil && n.asks() {
		return withAddress(remote, local.Status.PodIP) // The address of a pod that has ended is not looked up.
	}
	address, err := n.addressOf(remote)
	if err != nil {
		address = ""
		if local != nil && errors.Is(err, ErrPending) && annotationChanges(local, n.location(local, remote)) == nil {
			address = local.Status.PodIP
		}
	}
	shown := withAddress(remote, address)
	if address == "" && placement.Ready(shown) && !remote.Spec.HostNetwork {
		shown = notReady(shown, untrusted.Text(err.Error()))
	}
	return shown
}

// notReady returns a copy of the pod that is not Ready because its address is unknown.
func notReady(pod *corev1.Pod, because string) *corev1.Pod {
	shown := *pod
	shown.Status.Conditions = slices.Clone(pod.Status.Conditions)
	for i := range shown.Status.Conditions {
		if c := &shown.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "AddressUnknown", because
		}
	}
	return &shown
}

// addressOf returns the address with which a remote pod is shown. The error is one of Ways.Resolve's.
func (n *namespace) addressOf(remote *corev1.Pod) (string, error) {
	address, err := n.resolve(remote)
	if err != nil || !n.isOpaque() {
		return address, err
	}
	return external(n.ips, address)
}

// withAddress returns the pod with the address as its only one. The object in the cache does not change. The result may
// share memory with it: Liqo copies a pod before it changes it.
func withAddress(pod *corev1.Pod, address string) *corev1.Pod {
	if pod.Status.PodIP == address && (address != "" || len(pod.Status.PodIPs) == 0) {
		return pod // Of several podIPs, Liqo shows podIP only (forge.LocalPodStatus).
	}
	shown := *pod
	shown.Status.PodIP, shown.Status.PodIPs = address, nil
	if address != "" {
		// Liqo reflects one address per pod (forge.LocalPodStatus).
		shown.Status.PodIPs = []corev1.PodIP{{IP: address}}
	}
	return &shown
}
