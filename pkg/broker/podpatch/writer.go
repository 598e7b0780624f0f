// Package podpatch writes pods: their labels and annotations, and their status.
package podpatch

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// Writer writes pods, on condition that they are as they were read.
type Writer struct {
	Client  client.Client
	Clock   clock.PassiveClock
	Metrics *Metrics
}

// Patch changes labels and annotations in one request; nil removes. The API server answers Conflict if the pod has
// changed since it was read: a leader that was paused, or whose cache lags, changes nothing.
func (w *Writer) Patch(ctx context.Context, pod *corev1.Pod, metadata map[string]any) error {
	metadata["resourceVersion"] = pod.ResourceVersion
	return w.patch(pod, "pods", map[string]any{"metadata": metadata}, func(target *corev1.Pod, body []byte) error {
		return w.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	})
}

// PatchStatus changes fields of the status; nil removes. It answers Conflict as Patch does.
func (w *Writer) PatchStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	change := map[string]any{"metadata": map[string]any{"resourceVersion": pod.ResourceVersion}, "status": status}
	return w.patch(pod, "pods/status", change, func(target *corev1.Pod, body []byte) error {
		return w.Client.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, body))
	})
}

// PatchCondition sets one condition of the status.
func (w *Writer) PatchCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	return w.PatchStatus(ctx, pod, map[string]any{"conditions": []corev1.PodCondition{w.Timed(condition)}})
}

// Timed returns a condition whose last transition is now. Its message may quote a tenant or a provider: it is cut.
func (w *Writer) Timed(condition corev1.PodCondition) corev1.PodCondition {
	condition.Message = untrusted.Text(condition.Message)
	condition.LastTransitionTime = metav1.NewTime(w.Clock.Now())
	return condition
}

// patch measures a patch, and keeps the pod's new version for the next one.
func (w *Writer) patch(pod *corev1.Pod, resource string, change map[string]any, send func(*corev1.Pod, []byte) error) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	began := time.Now()
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = send(target, body)
	w.Metrics.observe(resource, err, time.Since(began))
	if err == nil {
		pod.ResourceVersion = target.ResourceVersion
	}
	return err
}

// NotReady is the condition of a pod that gets no traffic.
func NotReady(reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}
