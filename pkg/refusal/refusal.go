package refusal

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// The reasons of a refusal.
const (
	// QuotaExceeded is for a pod that does not fit into the quota of the VirtualNode at the provider cluster.
	QuotaExceeded = "QuotaExceeded"
	// Forbidden is for a pod to which the provider cluster answers 403 for any other reason.
	Forbidden = "Forbidden"
	// NamespaceNotOffloaded is for a pod whose namespace the provider cluster does not have.
	NamespaceNotOffloaded = "NamespaceNotOffloaded"
)

// Reasons returns all reasons.
func Reasons() []string { return []string{QuotaExceeded, Forbidden, NamespaceNotOffloaded} }

// fieldManager owns the condition in the managed fields of the pod.
const fieldManager = "liqo-broker-vk"

// Refusal means that a provider cluster rejects a pod.
type Refusal struct {
	VirtualNode string
	// Reason is one of Reasons; Message is the answer of the provider cluster, for people.
	Reason, Message string
	// Exceeded is the resource whose quota was exceeded, after QuotaExceeded; "" if it is not known.
	Exceeded corev1.ResourceName
	// At has the precision of a second.
	At time.Time
}

// Of returns the refusal of the pod by the VirtualNode that it is assigned to, if it was reported since the pod was
// assigned. Both times are compared by the second, the precision of a condition's time.
func Of(pod *corev1.Pod) (Refusal, bool) {
	return by(pod.Labels[v1alpha1.VirtualNodeLabel], pod)
}

func by(virtualNode string, pod *corev1.Pod) (Refusal, bool) {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != conditionType(virtualNode) || c.Status != corev1.ConditionTrue ||
			c.LastTransitionTime.Time.Before(v1alpha1.AssignedAt(pod).Truncate(time.Second)) {
			continue
		}
		reason, exceeded, _ := strings.Cut(c.Reason, ":")
		return Refusal{
			VirtualNode: virtualNode, Reason: reason, Exceeded: corev1.ResourceName(exceeded),
			Message: c.Message, At: c.LastTransitionTime.Time,
		}, true
	}
	return Refusal{}, false
}

// Report writes a refusal into the status of a pod, in place of the refusals by other VirtualNodes. It returns false if
// the refusal was already there. The message is cut. The UID of the pod is a precondition: a new pod of the same name
// was not refused. The clock here may be behind the broker's: a refusal never predates the assignment.
func Report(ctx context.Context, pods corev1client.PodInterface, pod *corev1.Pod, r Refusal) (bool, error) {
	r.Message = untrusted.Text(r.Message)
	if assigned := v1alpha1.AssignedAt(pod); r.At.Before(assigned) {
		r.At = assigned
	}
	if reported, found := by(r.VirtualNode, pod); found {
		reported.At = r.At
		if reported == r {
			return false, nil
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": conditions(pod, r)},
	})
	if err != nil {
		return false, err
	}
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err != nil {
		return false, fmt.Errorf("condition %s of pod %s/%s: %w", conditionType(r.VirtualNode), pod.Namespace, pod.Name, err)
	}
	return true, nil
}

// conditions returns the change of the pod's conditions, in the form of a strategic merge patch.
func conditions(pod *corev1.Pod, r Refusal) []any {
	reason := r.Reason
	if r.Exceeded != "" {
		reason += ":" + string(r.Exceeded)
	}
	refused := corev1.PodCondition{
		Type:               conditionType(r.VirtualNode),
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(r.At),
		Reason:             reason,
		Message:            r.Message,
	}
	changes := []any{refused}
	for i := range pod.Status.Conditions {
		other := pod.Status.Conditions[i].Type
		if other != refused.Type && strings.HasPrefix(string(other), v1alpha1.ConditionRefusedPrefix) {
			changes = append(changes, map[string]any{"type": other, "$patch": "delete"})
		}
	}
	return changes
}

// conditionType is a qualified name: the name of a VirtualNode that a pod is assigned to is also the value of a label.
func conditionType(virtualNode string) corev1.PodConditionType {
	return corev1.PodConditionType(v1alpha1.ConditionRefusedPrefix + virtualNode)
}
