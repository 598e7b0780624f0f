package brokernode

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// The reasons of the condition v1alpha1.ConditionRefused.
const (
	// ReasonForbidden says that the provider cluster answered 403 to the pod: its quota, for one.
	ReasonForbidden = "Forbidden"
	// ReasonNamespaceNotOffloaded says that the provider cluster has no namespace for the pod.
	ReasonNamespaceNotOffloaded = "NamespaceNotOffloaded"
)

// fieldManager names us in the managed fields of what we patch.
const fieldManager = "liqo-broker-vk"

// Refusals tells the broker, by a condition of the pod, what this virtual kubelet was told to run and cannot.
type Refusals struct {
	View  View
	Pods  func(namespace string) corev1client.PodInterface
	Clock clock.PassiveClock
	Log   logr.Logger
	// Told is called with the reason of each refusal that the broker has been told of; nil is nobody.
	Told func(reason string)
}

// tell sets the condition of the pod, unless it says so already since the pod was assigned. The pod's UID is a
// precondition: a new pod of the same name was not refused.
func (r *Refusals) tell(ctx context.Context, pod *corev1.Pod, reason, message string) error {
	condition := corev1.PodCondition{
		Type:               v1alpha1.ConditionRefused,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		Reason:             reason,
		Message:            r.View.VirtualNode + ": " + message,
	}
	if told(pod, condition) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return err
	}
	_, err = r.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err != nil {
		return fmt.Errorf("condition %s of pod %s/%s: %w", v1alpha1.ConditionRefused, pod.Namespace, pod.Name, err)
	}
	if r.Told != nil {
		r.Told(reason)
	}
	return nil
}

// told says whether the pod has the condition from a time since which it was not assigned anew. Conditions have the
// precision of a second.
func told(pod *corev1.Pod, condition corev1.PodCondition) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type != condition.Type {
			continue
		}
		assigned, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AssignedAtAnnotation])
		current := err != nil || !c.LastTransitionTime.Time.Before(assigned.Truncate(time.Second))
		return current && c.Status == condition.Status && c.Reason == condition.Reason && c.Message == condition.Message
	}
	return false
}

// ShadowPods returns a client that tells of ShadowPods of local pods that the provider cluster refuses (403) and does not
// have. The error is passed on: Liqo makes an event of it, and tries again.
func (r *Refusals) ShadowPods(client liqoclient.Interface, pods corev1listers.PodNamespaceLister) liqoclient.Interface {
	return shadowPodLens{Interface: client, forwardTokens: r.View.ForwardTokens, refused: func(ctx context.Context, name string, refusal error) {
		pod, err := pods.Get(name)
		if err != nil {
			return // It has left meanwhile.
		}
		if err := r.tell(ctx, pod, ReasonForbidden, refusal.Error()); err != nil {
			r.Log.Error(err, "Cannot tell the broker of a refusal", "refusal", refusal.Error())
		}
	}}
}

type shadowPodLens struct {
	liqoclient.Interface
	forwardTokens bool
	refused       func(ctx context.Context, name string, refusal error)
}

func (l shadowPodLens) OffloadingV1beta1() offloadingclient.OffloadingV1beta1Interface {
	return shadowPodLensGroup{OffloadingV1beta1Interface: l.Interface.OffloadingV1beta1(), lens: l}
}

type shadowPodLensGroup struct {
	offloadingclient.OffloadingV1beta1Interface
	lens shadowPodLens
}

func (g shadowPodLensGroup) ShadowPods(namespace string) offloadingclient.ShadowPodInterface {
	return shadowPods{ShadowPodInterface: g.OffloadingV1beta1Interface.ShadowPods(namespace), lens: g.lens}
}

type shadowPods struct {
	offloadingclient.ShadowPodInterface
	lens shadowPodLens
}

func (s shadowPods) Create(ctx context.Context, shadow *offloadingv1beta1.ShadowPod,
	opts metav1.CreateOptions,
) (*offloadingv1beta1.ShadowPod, error) {
	if !s.lens.forwardTokens {
		shadow = withoutTokens(shadow)
	}
	created, err := s.ShadowPodInterface.Create(ctx, shadow, opts)
	if kerrors.IsForbidden(err) && !s.mayHave(ctx, shadow.Name) {
		s.lens.refused(ctx, shadow.Name, err)
	}
	return created, err
}

// mayHave says whether the provider cluster has a ShadowPod of that name, or does not tell. One that it has Liqo's webhook
// refuses with 403, before the API server could say that it exists (getOrCreateShadowPodDescription in
// pkg/webhooks/shadowpod: it "is already running", or "still exists"). It is asked for again if the answer to the first
// request was lost, or a restart filled the cache before it was made.
func (s shadowPods) mayHave(ctx context.Context, name string) bool {
	_, err := s.Get(ctx, name, metav1.GetOptions{})
	return !kerrors.IsNotFound(err) && !kerrors.IsForbidden(err)
}

// Fallback returns Liqo's reflector of pods in namespaces that are not offloaded to the provider cluster, with a
// difference: Liqo rejects such a pod, and one that has run before, at another provider, for good (it becomes Failed).
// Here the broker is told, and sends it elsewhere, whether it runs or not: who calls this must know that the namespace
// is not offloaded, and not just that its reflection has not started.
func (r *Refusals) Fallback(next manager.FallbackReflector, pods corev1listers.PodLister) manager.FallbackReflector {
	return refusingFallback{FallbackReflector: next, refusals: r, pods: pods}
}

type refusingFallback struct {
	manager.FallbackReflector
	refusals *Refusals
	pods     corev1listers.PodLister
}

func (f refusingFallback) Handle(ctx context.Context, key types.NamespacedName) error {
	pod, err := f.pods.Pods(key.Namespace).Get(key.Name)
	if err != nil || pod.DeletionTimestamp != nil || Terminal(pod) {
		return f.FallbackReflector.Handle(ctx, key)
	}
	return f.refusals.tell(ctx, pod, ReasonNamespaceNotOffloaded,
		fmt.Sprintf("namespace %s is not offloaded to this provider cluster", key.Namespace))
}
