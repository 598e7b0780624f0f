package brokernode

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	offloadinglisters "github.com/liqotech/liqo/pkg/client/listers/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
)

// errNotLetGo asks for a pod to be looked at again, since what it left behind at this provider cluster is still there.
var errNotLetGo = errors.New("waiting until the pod's previous ShadowPod and its pod are gone")

// Handover is Liqo's pod reflector of a namespace in which pods come and go between virtual kubelets while they live.
//
//   - The ShadowPod of a pod that another VirtualNode of the same provider cluster has got meanwhile stays. Liqo deletes
//     whatever has the name of a local pod that it cannot see (any more).
//   - A pod that comes (back) waits until its previous ShadowPod and that one's pod are gone. Liqo would take the first
//     over, and with it the quota that it counts against; and Liqo's ShadowPod controller would take the end of the
//     second for the end of the new one.
//   - What Liqo remembers of a pod is forgotten when it leaves. Else, if it left before its ShadowPod was seen, Liqo
//     would wait for that one for ever once the pod is back (PodInfo.PreventCreationUntilSeen).
type Handover struct {
	manager.NamespacedReflector
	Local   corev1listers.PodNamespaceLister
	Remote  corev1listers.PodNamespaceLister
	Shadows offloadinglisters.ShadowPodNamespaceLister
	// Forget drops what is remembered of a pod (workload.NamespacedPodReflector.ForgetPodInfo).
	Forget func(name string)
}

// WakeUp makes opts enqueue a pod when something of its name has been deleted at the provider cluster, whichever
// virtual kubelet made it: Liqo's own handlers pass on what bears its node name only.
func WakeUp(opts *options.NamespacedOpts) {
	handler := opts.HandlerFactory(generic.NamespacedKeyer(opts.LocalNamespace),
		options.EventFilterCreate, options.EventFilterUpdate)
	_, err := opts.RemoteFactory.Core().V1().Pods().Informer().AddEventHandler(handler)
	must(err)
	_, err = opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Informer().AddEventHandler(handler)
	must(err)
}

// Handle implements manager.NamespacedReflector.
func (h *Handover) Handle(ctx context.Context, name string) error {
	// The caches fail for one reason only: there is no such object.
	local, _ := h.Local.Get(name)
	remote, _ := h.Remote.Get(name)
	shadow, _ := h.Shadows.Get(name)

	if local == nil {
		h.Forget(name)
		if shadow != nil && !own(shadow) {
			return nil
		}
	}
	if local != nil && local.DeletionTimestamp == nil && !Terminal(local) && leftBehind(shadow, remote) {
		return errNotLetGo
	}
	return h.NamespacedReflector.Handle(ctx, name)
}

// leftBehind says whether what is at the provider cluster is of an earlier stay of the pod there, or on its way out
// because its ShadowPod is gone. What is not of this cluster at all is Liqo's to complain about.
func leftBehind(shadow *offloadingv1beta1.ShadowPod, remote *corev1.Pod) bool {
	if shadow != nil {
		return forge.IsReflected(shadow) && (!own(shadow) || shadow.DeletionTimestamp != nil)
	}
	return remote != nil && forge.IsReflected(remote)
}

// own says whether this virtual kubelet made the ShadowPod.
func own(shadow *offloadingv1beta1.ShadowPod) bool {
	return shadow.Labels[forge.LiqoOriginClusterNodeName] == forge.LiqoNodeName
}
