package podlife

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"
	offloadinglisters "github.com/liqotech/liqo/pkg/client/listers/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// errEarlier requeues a pod while a ShadowPod or remote pod of an earlier pod of its name exists.
var errEarlier = errors.New("waiting for the deletion of the ShadowPod of an earlier pod of this name and of its remote pod")

// clockSkew bounds how much later than its ShadowPod a pod may seem to have been created, because the clocks of the two
// clusters differ.
const clockSkew = 5 * time.Minute

// Earlier returns Liqo's pod reflector of a namespace. It deletes the ShadowPod of an earlier pod of the same name, and
// forwards the current pod once the earlier remote pod no longer exists either. A pod may be replaced while the virtual
// kubelet is not running, and Liqo would assume that the earlier remote pod belongs to the new one. With a broker's
// node Handover does this (package brokernode).
func Earlier(local func(namespace string) corev1listers.PodNamespaceLister, next generic.NamespacedReflectorFactoryFunc,
) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		reflector := next(opts).(podReflector)
		return &earlier{
			podReflector: reflector,
			local:        local(opts.LocalNamespace),
			remote:       opts.RemoteFactory.Core().V1().Pods().Lister().Pods(opts.RemoteNamespace),
			shadows:      opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Lister().ShadowPods(opts.RemoteNamespace),
			client:       opts.RemoteLiqoClient.OffloadingV1beta1().ShadowPods(opts.RemoteNamespace),
		}
	}
}

// podReflector is Liqo's pod reflector of a namespace, or a wrapper of it.
type podReflector interface {
	manager.NamespacedReflector
	ForgetPodInfo(name string)
}

type earlier struct {
	podReflector
	local, remote corev1listers.PodNamespaceLister
	shadows       offloadinglisters.ShadowPodNamespaceLister
	client        offloadingclient.ShadowPodInterface
}

func (e *earlier) Handle(ctx context.Context, name string) error {
	// The caches have no other error than NotFound.
	local, _ := e.local.Get(name)
	remote, _ := e.remote.Get(name)
	shadow, _ := e.shadows.Get(name)
	if local == nil || local.DeletionTimestamp != nil || placement.Terminal(local) {
		return e.podReflector.Handle(ctx, name)
	}
	if shadow != nil && own(shadow) && ofEarlierPod(shadow, local) {
		e.ForgetPodInfo(name)
		return errors.Join(errEarlier, deleteShadowPod(ctx, e.client, shadow))
	}
	if remote != nil && own(remote) && (shadow == nil || ofAnother(remote, shadow)) {
		return errEarlier
	}
	return e.podReflector.Handle(ctx, name)
}

// ofEarlierPod reports whether a ShadowPod was made from an earlier pod of the local pod's name. The annotation with
// the pod's UID decides. Liqo's own virtual kubelet does not write it. Without it, the ShadowPod belongs to an earlier
// pod only if the local pod has not started and is newer.
func ofEarlierPod(shadow *offloadingv1beta1.ShadowPod, local *corev1.Pod) bool {
	if uid := transform.PodUID(shadow); uid != "" {
		return uid != local.UID
	}
	started := local.Status.StartTime != nil || len(local.Status.ContainerStatuses) > 0
	return !started && !shadow.CreationTimestamp.IsZero() &&
		shadow.CreationTimestamp.Add(clockSkew).Before(local.CreationTimestamp.Time)
}

// ofAnother reports whether a pod was made from another ShadowPod.
func ofAnother(remote *corev1.Pod, shadow *offloadingv1beta1.ShadowPod) bool {
	owner := metav1.GetControllerOf(remote)
	return owner != nil && owner.Kind == "ShadowPod" && owner.UID != shadow.UID
}

// own reports whether this virtual kubelet made the ShadowPod; of a remote pod, whether it made its ShadowPod.
func own(o metav1.Object) bool {
	return o.GetLabels()[forge.LiqoOriginClusterNodeName] == forge.LiqoNodeName && forge.IsReflected(o)
}

// deleteShadowPod deletes a ShadowPod unless it is being deleted.
func deleteShadowPod(ctx context.Context, client offloadingclient.ShadowPodInterface, shadow *offloadingv1beta1.ShadowPod) error {
	if shadow.DeletionTimestamp != nil {
		return nil
	}
	err := client.Delete(ctx, shadow.Name, *metav1.NewPreconditionDeleteOptions(string(shadow.UID)))
	if err != nil && !kerrors.IsNotFound(err) && !kerrors.IsConflict(err) { // Another ShadowPod has the name now.
		return fmt.Errorf("deleting ShadowPod %s: %w", shadow.Name, err)
	}
	return nil
}
