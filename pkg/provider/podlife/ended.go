package podlife

import (
	"context"
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

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podstatus"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// Ended returns Liqo's pod reflector of a namespace, and makes pods end as on a node:
//
//   - The last status of a remote pod is reported even if the caches have never shown it: a kubelet deletes a pod right
//     after it has written its terminal phase.
//   - A pod that has ended stays ended. Liqo would show it Running again if the provider's Liqo recreates its pod.
//   - A pod that was evicted or deleted in the remote cluster is deleted once its end is reported. Finalizers, such as
//     a Job's, keep it for its owner.
//   - If the remote pod of a pod that has ended no longer exists, its ShadowPod is deleted: the quota of the peering
//     still counts it.
//   - A pod that is being deleted gets a terminal phase before it is removed.
//
// With a broker's node (brokerNode) the broker deletes pods, and removes the assignment of pods that were disrupted.
func Ended(brokerNode bool, local func(namespace string) corev1listers.PodNamespaceLister, next generic.NamespacedReflectorFactoryFunc,
) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		pods := opts.RemoteFactory.Core().V1().Pods()
		e := &ended{
			local:   local(opts.LocalNamespace),
			remote:  pods.Lister().Pods(opts.RemoteNamespace),
			shadows: opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Lister().ShadowPods(opts.RemoteNamespace),
			client:  opts.RemoteLiqoClient.OffloadingV1beta1().ShadowPods(opts.RemoteNamespace),
			pods:    opts.LocalClient.CoreV1().Pods(opts.LocalNamespace),
			leaves:  brokerNode,
			last:    &lastStates{pods: map[string]*corev1.Pod{}},
		}
		transform.Must(pods.Informer().SetTransform(e.last.observe)) // Instead of the transform of transform.Trimmed.
		shown := *opts
		shown.RemoteFactory = transform.Factory{SharedInformerFactory: opts.RemoteFactory, Pods: e.last.lens}
		shown.LocalClient = disrupting{opts.LocalClient}
		e.podReflector = next(&shown).(podReflector)
		return e
	}
}

type ended struct {
	podReflector
	local, remote corev1listers.PodNamespaceLister
	shadows       offloadinglisters.ShadowPodNamespaceLister
	client        offloadingclient.ShadowPodInterface
	pods          corev1client.PodInterface
	last          *lastStates
	// leaves is true if the broker ends the pods that have ended.
	leaves bool
}

func (e *ended) Handle(ctx context.Context, name string) error {
	// The caches have no other error than NotFound.
	local, _ := e.local.Get(name)
	remote, _ := e.remote.Get(name)
	shadow, _ := e.shadows.Get(name)
	switch {
	case local == nil:
		e.last.forget(name)
	case local.DeletionTimestamp != nil && placement.Terminal(local):
		e.last.forget(name) // Liqo removes the pod once its remote pod is gone.
	case local.DeletionTimestamp != nil:
		if remote == nil && shadow == nil {
			if err := e.writeEnd(ctx, local); err != nil {
				return err
			}
		}
	case placement.Terminal(local):
		e.last.forget(name)
		return e.handleEnded(ctx, local, remote, shadow)
	default:
		e.last.forgetUnless(name, func(last *corev1.Pod) bool {
			return (remote == nil || remote.UID == last.UID) && shadow != nil && !ofAnother(last, shadow)
		})
	}
	return e.podReflector.Handle(ctx, name)
}

// ForgetPodInfo drops the remembered state of a pod.
func (e *ended) ForgetPodInfo(name string) {
	e.last.forget(name)
	e.podReflector.ForgetPodInfo(name)
}

// handleEnded handles a pod that has ended and is not being deleted.
func (e *ended) handleEnded(ctx context.Context, local, remote *corev1.Pod, shadow *offloadingv1beta1.ShadowPod) error {
	disruption := podstatus.Condition(&local.Status, corev1.DisruptionTarget)
	disrupted := disruption != nil && disruption.Status == corev1.ConditionTrue
	// A pod that ended by itself keeps its ShadowPod for its logs, until the remote pod is gone: Liqo's controller makes
	// another one of a ShadowPod whose status does not show the end yet.
	if shadow != nil && own(shadow) && (disrupted && !e.leaves || remote == nil || !placement.Terminal(remote)) {
		if err := deleteShadowPod(ctx, e.client, shadow); err != nil {
			return err
		}
	}
	if !e.leaves {
		// A pod made from a ShadowPod stays until its own local pod is deleted: Liqo would recreate it if it missed the
		// end. A pod that a kubelet or the broker ended stays Failed, for its owner.
		if disrupted && !ofShadowPod(local) &&
			disruption.Reason != corev1.PodReasonTerminationByKubelet && disruption.Reason != v1alpha1.ReasonEvictionByBroker {
			return e.deletePod(ctx, local)
		}
	}
	if remote != nil && remote.Status.Phase != local.Status.Phase {
		return nil // Liqo would write the other phase.
	}
	return e.podReflector.Handle(ctx, local.Name)
}

// ofShadowPod reports whether a pod was made from a ShadowPod of this cluster.
func ofShadowPod(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ShadowPod"
}

func (e *ended) deletePod(ctx context.Context, local *corev1.Pod) error {
	err := e.pods.Delete(ctx, local.Name, *metav1.NewPreconditionDeleteOptions(string(local.UID)))
	if err != nil && !kerrors.IsNotFound(err) && !kerrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s/%s, which was evicted or deleted in the remote cluster: %w", local.Namespace, local.Name, err)
	}
	return nil
}

// writeEnd writes the terminal phase of a pod that Liqo is about to remove. Otherwise a Job waits for the end of its
// pod (podReplacementPolicy, podFailurePolicy).
func (e *ended) writeEnd(ctx context.Context, local *corev1.Pod) error {
	status := podstatus.Unknown(&local.Status)
	if last := e.last.of(local.Name); last != nil {
		status = &podstatus.Show(local, last).Status
		status.PodIP, status.PodIPs = local.Status.PodIP, local.Status.PodIPs
		status.HostIP, status.HostIPs = local.Status.HostIP, local.Status.HostIPs
	}
	over := local.DeepCopy()
	over.Status = *status
	_, err := e.pods.UpdateStatus(ctx, over, metav1.UpdateOptions{FieldManager: forge.ReflectionFieldManager})
	if err == nil || kerrors.IsNotFound(err) || placement.NeverAccepted(err) {
		e.last.forget(local.Name)
		return nil
	}
	return fmt.Errorf("writing the terminal phase of pod %s/%s before its removal: %w", local.Namespace, local.Name, err)
}
