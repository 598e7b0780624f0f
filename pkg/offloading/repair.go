package offloading

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// longestRepair is the longest time between two deletions of one pod.
const longestRepair = 5 * time.Minute

// inEffect reports whether pods that are created in the namespace from now on can be bound to the broker's node and
// forwarded: the namespace has the label by which Liqo's webhook selects it, and at least one provider has the
// namespace. A provider without it does not delay the others.
func inEffect(namespace *corev1.Namespace, offloading *offloadingv1beta1.NamespaceOffloading) bool {
	if namespace.Labels[consts.SchedulingLiqoLabel] != consts.SchedulingLiqoLabelValue ||
		offloading.DeletionTimestamp != nil || offloading.Status.ObservedGeneration != offloading.Generation {
		return false
	}
	for _, conditions := range offloading.Status.RemoteNamespacesConditions {
		for i := range conditions {
			if conditions[i].Type == offloadingv1beta1.NamespaceReady && conditions[i].Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return false
}

// raceTime is how long before its NamespaceOffloading a pod may have been created and still count as created too early,
// rather than as a pod that ran here before the broker was installed.
const raceTime = time.Minute

// overtook reports whether a pod was created before the NamespaceOffloading took effect, which itself was created at
// offloaded: it lacks the changes of Liqo's webhook, and so will never be bound to brokerNode. It is false for pods
// that no ShadowPod would recreate, and for pods with a runtime class, whose tolerations are not the webhook's.
//
// A pod that already runs on a node of this cluster overtook it if it was created about the time when the namespace
// arrived. Pods that ran here long before that, such as before the broker was installed, are left running.
func overtook(pod *corev1.Pod, brokerNode string, offloaded time.Time) bool {
	if pod.DeletionTimestamp != nil || placement.Terminal(pod) || pod.Spec.NodeName == brokerNode || pod.Spec.RuntimeClassName != nil ||
		shadowOf(pod) == nil || mutated(pod) {
		return false
	}
	return !begun(pod) || !pod.CreationTimestamp.Time.Before(offloaded.Add(-raceTime))
}

// mutated looks for the toleration that the webhook adds to every pod (getVirtualNodeToleration). ShadowPods carry
// none: the consumer's virtual kubelet leaves it out.
func mutated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == consts.VirtualNodeTolerationKey && t.Operator == corev1.TolerationOpExists &&
			t.Effect == corev1.TaintEffectNoExecute
	})
}

// begun reports whether any container of a pod runs or ran.
func begun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(s corev1.ContainerStatus) bool {
			return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
		})
}

// shadowOf is the ShadowPod that a pod is controlled by; nil if there is none.
func shadowOf(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "ShadowPod" || !strings.HasPrefix(owner.APIVersion, offloadingv1beta1.SchemeGroupVersion.Group+"/") {
		return nil
	}
	return owner
}

// repairIn returns the time to wait before a pod may be deleted. The time doubles with every pod that the same
// ShadowPod created, because the age of the ShadowPod at that moment doubles; it needs no stored state, and a restart
// does not shorten it.
func repairIn(shadowCreated, podCreated, now time.Time) time.Duration {
	return max(0, min(podCreated.Sub(shadowCreated), longestRepair)-now.Sub(podCreated))
}

// repair deletes the pods of a namespace that overtook its NamespaceOffloading, so that Liqo's ShadowPod controller
// creates them again. It returns the time after which to repeat; 0 is not at all.
func (r *reconciler) repair(ctx context.Context, namespace *corev1.Namespace, offloaded time.Time) (time.Duration, error) {
	var pods corev1.PodList
	if err := r.pods.List(ctx, &pods, client.InNamespace(namespace.Name)); err != nil {
		return 0, fmt.Errorf("pods of namespace %s: %w", namespace.Name, err)
	}
	var again time.Duration
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !overtook(pod, r.cfg.BrokerNode, offloaded) {
			continue
		}
		after, err := r.repairPod(ctx, pod)
		if err != nil {
			return 0, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		if after > 0 && (again == 0 || after < again) {
			again = after
		}
	}
	return again, nil
}

// repairPod deletes a pod, unless it is too early, or the pod has changed since it was read.
func (r *reconciler) repairPod(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	shadow := placement.ShadowPodMetadata()
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), shadow); err != nil {
		return 0, client.IgnoreNotFound(err) // Without its ShadowPod the pod is deleted too.
	}
	if after := repairIn(shadow.CreationTimestamp.Time, pod.CreationTimestamp.Time, r.now()); after > 0 {
		return after, nil
	}
	err := r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	switch {
	case kerrors.IsConflict(err), kerrors.IsNotFound(err):
		return 0, nil // Its change requeues it.
	case err != nil:
		return 0, err
	}
	r.metrics.recreated.Inc()
	r.events.Event(pod, corev1.EventTypeNormal, "Recreating",
		"Recreated so that it can be scheduled to the broker's node: it was created before its namespace was offloaded")
	return 0, nil
}
