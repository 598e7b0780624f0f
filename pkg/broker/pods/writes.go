package pods

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patchPod changes labels and annotations in one request; nil removes. The API server answers Conflict if the pod has
// changed since it was read: a leader that was paused, or whose cache lags, changes nothing.
func (c *Controller) patchPod(ctx context.Context, pod *corev1.Pod, metadata map[string]any) error {
	metadata["resourceVersion"] = pod.ResourceVersion
	return c.patch(pod, "pods", map[string]any{"metadata": metadata}, func(target *corev1.Pod, body []byte) error {
		return c.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	})
}

// patchStatus changes fields of the status; nil removes. It answers Conflict as patchPod does.
func (c *Controller) patchStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	change := map[string]any{"metadata": map[string]any{"resourceVersion": pod.ResourceVersion}, "status": status}
	return c.patch(pod, "pods/status", change, func(target *corev1.Pod, body []byte) error {
		return c.Client.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, body))
	})
}

func (c *Controller) patchCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	return c.patchStatus(ctx, pod, map[string]any{"conditions": []corev1.PodCondition{c.timed(condition)}})
}

func (c *Controller) timed(condition corev1.PodCondition) corev1.PodCondition {
	condition.LastTransitionTime = metav1.NewTime(c.Clock.Now())
	return condition
}

// patch measures a patch, and keeps the pod's new version for the next one.
func (c *Controller) patch(pod *corev1.Pod, resource string, change map[string]any, send func(*corev1.Pod, []byte) error) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	began := time.Now()
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = send(target, body)
	c.Metrics.patched(resource, err, time.Since(began))
	if err == nil {
		pod.ResourceVersion = target.ResourceVersion
	}
	return err
}

func notReady(reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}
