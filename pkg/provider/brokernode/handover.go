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

// errPreviousExists requeues a pod whose previous ShadowPod, or that ShadowPod's pod, still exists at the provider
// cluster.
var errPreviousExists = errors.New("waiting for the deletion of the pod's previous ShadowPod and of its remote pod")

// Handover returns Liqo's pod reflector of a namespace in which pods move between virtual kubelets while they live.
//
//   - If another VirtualNode of the same provider cluster now forwards the pod, its ShadowPod stays. Liqo deletes every
//     ShadowPod without a local pod of its name.
//   - A pod that is assigned here (again) waits until its previous ShadowPod and that ShadowPod's pod no longer exist.
//     Liqo would reuse the ShadowPod, with the quota that it counts against, and Liqo's ShadowPod controller would
//     treat the end of the previous pod as the end of the new one.
//   - The ShadowPod of an earlier pod of the same name is deleted first; the UID on it identifies its pod. Liqo would
//     use it for the new pod and report that the new pod has run, if the earlier pod was deleted while no virtual
//     kubelet was running.
//   - A pod that is assigned here again also waits while the caches still show the ShadowPod that was deleted when it
//     was moved away, or that ShadowPod's pod. Liqo would show the end of that pod as the end of this one, which would
//     never run again.
//   - A pod that has ended when it is moved away is shown as ended, and does not run again.
//   - A pod that was moved away is released: the broker is told that no ShadowPod of it is being created any more.
//   - Liqo's state of a pod is forgotten when the pod is moved away. Otherwise, if it was moved away before its
//     ShadowPod was in the cache, Liqo would never create another ShadowPod (PodInfo.PreventCreationUntilSeen).
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

// forgetter is Liqo's pod reflector, or a wrapper of it.
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
// regardless of the virtual kubelet that made it. Liqo's own handlers enqueue only objects with its node name.
func requeueOnDelete(opts *options.NamespacedOpts) {
	handler := opts.HandlerFactory(generic.NamespacedKeyer(opts.LocalNamespace),
		options.EventFilterCreate, options.EventFilterUpdate)
	_, err := opts.RemoteFactory.Core().V1().Pods().Informer().AddEventHandler(handler)
	transform.Must(err)
	_, err = opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Informer().AddEventHandler(handler)
	transform.Must(err)
}

func (h *handover) Handle(ctx context.Context, name string) error {
	// The caches only fail with NotFound. They may lag behind one another, and behind the deletions of this process.
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
		// The provider may have taken long to answer, and Liqo reads the caches again.
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

// reportEnd reports that a pod that was moved away has ended by itself, and not because its ShadowPod was deleted. It
// reads the pod from the API server: with a stale cache, the ShadowPod would be deleted, and the pod would run again.
// If the provider has already removed the pod, its end is in the status of its ShadowPod.
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
		return fmt.Errorf("checking whether pod %s, which is being moved away, has ended: %w", shadow.Name, err)
	}
	status := untrusted.PodStatus(&remote.Status)
	if !placement.EndedByItself(status, remote.DeletionTimestamp != nil) {
		return nil
	}
	return h.releases.reportEnd(ctx, shadow.Name, transform.PodUID(shadow), status)
}

// reportEndOf is reportEnd for a pod that the provider has removed. It reads the ShadowPod from the API server too.
func (h *handover) reportEndOf(ctx context.Context, cached *offloadingv1beta1.ShadowPod) error {
	shadow, err := h.client.Get(ctx, cached.Name, metav1.GetOptions{})
	switch {
	case kerrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("checking ShadowPod %s for the end of its pod, which is being moved away: %w", cached.Name, err)
	case shadow.UID != cached.UID:
		return nil // The cache will show the new ShadowPod.
	}
	status := placement.EndOfShadowPod(shadow.Status.Phase, shadow.Spec.Pod.RestartPolicy)
	if status == nil {
		return nil
	}
	return h.releases.reportEnd(ctx, shadow.Name, transform.PodUID(cached), status)
}

// ofEarlierPod reports whether this virtual kubelet made a ShadowPod for an earlier pod of the same name.
func ofEarlierPod(shadow *offloadingv1beta1.ShadowPod, local *corev1.Pod) bool {
	return shadow != nil && own(shadow) && transform.PodUID(shadow) != "" && transform.PodUID(shadow) != local.UID
}

func (h *handover) remove(ctx context.Context, shadow *offloadingv1beta1.ShadowPod) error {
	err := h.client.Delete(ctx, shadow.Name, *metav1.NewPreconditionDeleteOptions(string(shadow.UID)))
	if kerrors.IsNotFound(err) || kerrors.IsConflict(err) { // A conflict means that another ShadowPod has the name now.
		return nil
	}
	return err
}

// leftBehind reports whether a ShadowPod or pod of an earlier forwarding exists at the provider cluster: another
// VirtualNode forwarded it, it is being deleted, or the pod belongs to another ShadowPod (Liqo's controller sets the
// owner). The caches may lag by different times. Objects that this cluster did not forward at all are reported by Liqo.
func leftBehind(shadow *offloadingv1beta1.ShadowPod, remote *corev1.Pod) bool {
	if shadow != nil {
		return forge.IsReflected(shadow) && (!own(shadow) || shadow.DeletionTimestamp != nil || ofAnother(remote, shadow))
	}
	return remote != nil && forge.IsReflected(remote)
}

// ofAnother reports whether a pod was made from another ShadowPod.
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
