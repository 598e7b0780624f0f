package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// explain says on a pod why no provider was found for it, once for each reason.
func (b *Broker) explain(ctx context.Context, pod *corev1.Pod, reason, message string) error {
	if pod.Annotations[v1alpha1.MovingFromAnnotation] != "" {
		// It has left, and waits like any other: what becomes of its last provider does not concern it any more.
		annotations := hasLeft()
		annotations[v1alpha1.DecisionAnnotation] = nil
		err := b.patchPod(ctx, pod, map[string]any{"annotations": annotations})
		if err != nil {
			return err
		}
	}
	known := podCondition(pod, v1alpha1.ConditionAssigned)
	if known != nil && known.Reason == reason && known.Message == message {
		return nil
	}
	if known == nil || known.Reason != reason || known.Status != corev1.ConditionFalse || reason == "InvalidCriteria" {
		// The counts of a message change with every pod that comes or goes.
		b.events.Event(pod, corev1.EventTypeWarning, "FailedAssignment", message)
	}
	return b.patchPodStatus(ctx, pod, corev1.PodCondition{
		Type: v1alpha1.ConditionAssigned, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	})
}

// clearAddress takes what the last virtual kubelet said from a pod that leaves it: were the address to stay, Liqo would
// map it again as soon as its IP object is deleted, and the next address never.
func (b *Broker) clearAddress(ctx context.Context, pod *corev1.Pod, leaving string) error {
	if pod.Status.Phase == corev1.PodPending && pod.Status.PodIP == "" {
		return nil
	}
	// Containers that have ended may not run again in the eyes of the API server, so they go too; and a pod that does not
	// start at the next provider is then Pending there.
	return b.patchPodStatusWith(ctx, pod, map[string]any{
		"phase": corev1.PodPending, "podIP": nil, "podIPs": nil,
		"containerStatuses": nil, "initContainerStatuses": nil, "ephemeralContainerStatuses": nil,
		"conditions": []corev1.PodCondition{b.timed(notReady("Moving", "leaving "+leaving))},
	})
}

func notReady(reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

// forgetAddress deletes Liqo's IP object of a pod that gets another address: spec.ip cannot be changed, and a stale one
// makes Liqo's EndpointSlice reflection fail.
func (b *Broker) forgetAddress(ctx context.Context, pod *corev1.Pod) error {
	ip := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := b.client.Delete(ctx, ip); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("IP of pod %s: %w", nameOf(pod), err)
	}
	return nil
}

// finalize ends a pod that is being deleted and runs nowhere.
func (b *Broker) finalize(ctx context.Context, pod *corev1.Pod) error {
	none := int64(0)
	return client.IgnoreNotFound(b.client.Delete(ctx, pod, &client.DeleteOptions{
		GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	}))
}

// finalizeOrphan ends a pod that is done, is being deleted, and has no virtual kubelet that would do so.
func (b *Broker) finalizeOrphan(ctx context.Context, pod *corev1.Pod, virtualNode string) (ctrl.Result, error) {
	if pod.DeletionTimestamp == nil {
		return ctrl.Result{}, nil
	}
	if virtualNode != "" {
		s, err := b.situationOf(ctx, virtualNode)
		if err != nil || s.known {
			return ctrl.Result{}, err
		}
		wait, err := b.leave(ctx, pod, virtualNode, pod.Labels[v1alpha1.ProviderLabel], s)
		if err != nil || wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, err
		}
	}
	return ctrl.Result{}, b.finalize(ctx, pod)
}

// patchPod changes labels and annotations in one request; null removes. It is refused with a Conflict if the pod is not
// what it was when it was read: a leader that was paused, or whose cache lags, changes nothing.
func (b *Broker) patchPod(ctx context.Context, pod *corev1.Pod, metadata map[string]any) error {
	metadata["resourceVersion"] = pod.ResourceVersion
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	began := time.Now()
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = b.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	b.metrics.patched("pods", err, time.Since(began))
	if err == nil {
		pod.ResourceVersion = target.ResourceVersion
	}
	return err
}

func (b *Broker) patchPodStatus(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	return b.patchPodStatusWith(ctx, pod, map[string]any{"conditions": []corev1.PodCondition{b.timed(condition)}})
}

func (b *Broker) timed(condition corev1.PodCondition) corev1.PodCondition {
	condition.LastTransitionTime = metav1.NewTime(b.now())
	return condition
}

// patchPodStatusWith changes fields of the status; like patchPod it changes the pod that was read, or none.
func (b *Broker) patchPodStatusWith(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": pod.ResourceVersion}, "status": status,
	})
	if err != nil {
		return err
	}
	began := time.Now()
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = b.client.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, body))
	b.metrics.patched("pods/status", err, time.Since(began))
	if err == nil {
		pod.ResourceVersion = target.ResourceVersion
	}
	return err
}
