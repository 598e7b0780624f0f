package brokernode

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"
	offloadinglisters "github.com/liqotech/liqo/pkg/client/listers/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// errPreviousExists requeues a pod whose previous ShadowPod, or the pod of that one, still exists at the provider
// cluster.
var errPreviousExists = errors.New("waiting until the pod's previous ShadowPod and its pod are gone")

// Handover returns Liqo's pod reflector of a namespace in which pods come from and go to other virtual kubelets while
// they live.
//
//   - The ShadowPod of a pod that another VirtualNode of the same provider cluster forwards now stays. Liqo deletes
//     every ShadowPod without a local pod of its name.
//   - A pod that comes (back) waits until its previous ShadowPod and the pod of that one are gone. Liqo would reuse the
//     first, with the quota that it counts against; and Liqo's ShadowPod controller would take the end of the second for
//     the end of the new one.
//   - What was made of an earlier pod of the same name is deleted first, by the UID that its ShadowPod has. Liqo would take
//     it for the new pod's, and report that it has run, if the earlier one was deleted while no virtual kubelet was running.
//   - A pod that comes back also waits while the caches still show the ShadowPod that was deleted when it left, or that one's
//     pod. Liqo would show the end of that pod as the end of this one, which would never run again.
//   - A pod that has ended when it leaves is shown as ended, and does not run again.
//   - A pod that leaves is released: the broker is told that no ShadowPod of it is being created any more.
//   - What Liqo remembers of a pod is forgotten when it leaves. Otherwise, if it left before its ShadowPod was in the
//     cache, Liqo would never create another (PodInfo.PreventCreationUntilSeen).
func (f *Forwarder) Handover(local func(namespace string) corev1listers.PodNamespaceLister,
	next generic.NamespacedReflectorFactoryFunc,
) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		requeueOnDelete(opts)
		reflector := next(opts)
		return &handover{
			NamespacedReflector: reflector,
			forget:              reflector.(forgetter).ForgetPodInfo,
			releases:            f.startNamespace(opts.LocalNamespace),
			local:               local(opts.LocalNamespace),
			remote:              opts.RemoteFactory.Core().V1().Pods().Lister().Pods(opts.RemoteNamespace),
			shadows:             opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Lister().ShadowPods(opts.RemoteNamespace),
			client:              opts.RemoteLiqoClient.OffloadingV1beta1().ShadowPods(opts.RemoteNamespace),
			remotePods:          opts.RemoteClient.CoreV1().Pods(opts.RemoteNamespace),
		}
	}
}

// forgetter is Liqo's pod reflector, or one around it.
type forgetter interface{ ForgetPodInfo(name string) }

var _ forgetter = (*workload.NamespacedPodReflector)(nil)

type handover struct {
	manager.NamespacedReflector
	forget        func(name string)
	releases      *releases
	local, remote corev1listers.PodNamespaceLister
	shadows       offloadinglisters.ShadowPodNamespaceLister
	client        offloadingclient.ShadowPodInterface
	remotePods    corev1client.PodInterface
}

// requeueOnDelete makes opts enqueue a pod when a pod or ShadowPod of its name is deleted at the provider cluster,
// whichever virtual kubelet made it. Liqo's own handlers enqueue only what has its node name.
func requeueOnDelete(opts *options.NamespacedOpts) {
	handler := opts.HandlerFactory(generic.NamespacedKeyer(opts.LocalNamespace),
		options.EventFilterCreate, options.EventFilterUpdate)
	_, err := opts.RemoteFactory.Core().V1().Pods().Informer().AddEventHandler(handler)
	transform.Must(err)
	_, err = opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Informer().AddEventHandler(handler)
	transform.Must(err)
}

func (h *handover) Handle(ctx context.Context, name string) error {
	// The caches fail for one reason only: there is no such object.
	// They may lag behind one another, and behind what this process has deleted.
	local, _ := h.local.Get(name)
	remote, _ := h.remote.Get(name)
	shadow, _ := h.shadows.Get(name)

	if local == nil {
		h.forget(name)
		if shadow != nil && !own(shadow) {
			return h.releases.release(ctx, name)
		}
		if err := h.reportEnd(ctx, shadow); err != nil {
			return err
		}
		// The provider may have taken long to answer, and Liqo reads the caches anew.
		if local, _ := h.local.Get(name); local != nil {
			return errPreviousExists
		}
		h.releases.observeRemoval(name, shadow)
		return errors.Join(h.NamespacedReflector.Handle(ctx, name), h.releases.release(ctx, name))
	}
	h.releases.observe(local, shadow != nil)
	if local.DeletionTimestamp == nil && !placement.Terminal(local) {
		if (ofEarlierPod(shadow, local) || h.releases.removes(name, shadow)) && shadow.DeletionTimestamp == nil {
			return errors.Join(errPreviousExists, h.remove(ctx, shadow))
		}
		if leftBehind(shadow, remote) {
			return errPreviousExists
		}
	}
	return h.NamespacedReflector.Handle(ctx, name)
}

// reportEnd reports that a pod that left has ended by itself, and not because its ShadowPod is deleted. It reads the pod from the
// API server: if the cache lagged, the ShadowPod would be deleted, and the pod would run again. The end of a pod that the provider
// has removed since is in the status of its ShadowPod.
func (h *handover) reportEnd(ctx context.Context, shadow *offloadingv1beta1.ShadowPod) error {
	if shadow == nil || shadow.DeletionTimestamp != nil || transform.PodUID(shadow) == "" {
		return nil
	}
	remote, err := h.remotePods.Get(ctx, shadow.Name, metav1.GetOptions{})
	tooLong := (*untrusted.TooLongError)(nil)
	switch {
	case kerrors.IsNotFound(err):
		return h.reportEndOf(ctx, shadow)
	case errors.As(err, &tooLong):
		return nil
	case err != nil:
		return fmt.Errorf("reading whether pod %s, which leaves, has ended: %w", shadow.Name, err)
	}
	status := untrusted.PodStatus(&remote.Status)
	if !placement.EndedByItself(status, remote.DeletionTimestamp != nil) {
		return nil
	}
	return h.releases.reportEnd(ctx, shadow.Name, transform.PodUID(shadow), status)
}

// reportEndOf is reportEnd for a pod that the provider has removed. The ShadowPod is read from the API server, as the pod is.
func (h *handover) reportEndOf(ctx context.Context, cached *offloadingv1beta1.ShadowPod) error {
	shadow, err := h.client.Get(ctx, cached.Name, metav1.GetOptions{})
	switch {
	case kerrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading from ShadowPod %s, whose pod leaves, whether that has ended: %w", cached.Name, err)
	case shadow.UID != cached.UID:
		return nil // The cache will show it.
	}
	status := placement.EndOfShadowPod(shadow.Status.Phase, shadow.Spec.Pod.RestartPolicy)
	if status == nil {
		return nil
	}
	return h.releases.reportEnd(ctx, shadow.Name, transform.PodUID(cached), status)
}

// ofEarlierPod reports whether this virtual kubelet made a ShadowPod of another pod, which bore the name before.
func ofEarlierPod(shadow *offloadingv1beta1.ShadowPod, local *corev1.Pod) bool {
	return shadow != nil && own(shadow) && transform.PodUID(shadow) != "" && transform.PodUID(shadow) != local.UID
}

func (h *handover) remove(ctx context.Context, shadow *offloadingv1beta1.ShadowPod) error {
	err := h.client.Delete(ctx, shadow.Name, *metav1.NewPreconditionDeleteOptions(string(shadow.UID)))
	if kerrors.IsNotFound(err) || kerrors.IsConflict(err) { // Another one has the name by now.
		return nil
	}
	return err
}

// leftBehind reports whether what exists at the provider cluster was forwarded before: by another VirtualNode, or it is
// being deleted, or the pod is that of another ShadowPod (Liqo's controller sets the owner), as the caches may lag by different
// times. What this cluster did not forward at all, Liqo reports.
func leftBehind(shadow *offloadingv1beta1.ShadowPod, remote *corev1.Pod) bool {
	if shadow != nil {
		return forge.IsReflected(shadow) && (!own(shadow) || shadow.DeletionTimestamp != nil || ofAnother(remote, shadow))
	}
	return remote != nil && forge.IsReflected(remote)
}

// ofAnother reports whether a pod was made of another ShadowPod.
func ofAnother(remote *corev1.Pod, shadow *offloadingv1beta1.ShadowPod) bool {
	if remote == nil {
		return false
	}
	owner := metav1.GetControllerOf(remote)
	return owner != nil && owner.Kind == "ShadowPod" && owner.UID != shadow.UID
}

// own reports whether this virtual kubelet made the ShadowPod.
func own(shadow *offloadingv1beta1.ShadowPod) bool {
	return shadow.Labels[forge.LiqoOriginClusterNodeName] == forge.LiqoNodeName
}
