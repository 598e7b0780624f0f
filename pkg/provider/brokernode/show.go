package brokernode

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// OnOwnNode returns the reflector with the pods of the view shown as bound to Liqo's node. Liqo's service account
// reflector marks the Secrets with tokens with the node of the pod. All other reflectors use Liqo's node name. With the
// broker's node as mark, no virtual kubelet would delete these Secrets if a pod is moved away while its virtual kubelet
// is down.
func (v View) OnOwnNode(reflector manager.Reflector) manager.Reflector {
	return onOwnNode{Reflector: reflector, view: v}
}

type onOwnNode struct {
	manager.Reflector
	view View
}

func (r onOwnNode) Start(ctx context.Context, opts *options.ReflectorOpts) {
	seen := *opts
	seen.LocalPodInformer = transform.Pods(opts.LocalPodInformer, transform.Show(func(pod *corev1.Pod) *corev1.Pod {
		shown := *pod
		shown.Spec.NodeName = r.view.LiqoNodeName
		return &shown
	}))
	r.Reflector.Start(ctx, &seen)
}

// reasonUnreachable is the reason of the condition Ready of a pod whose provider cluster cannot be reached.
const reasonUnreachable = "ProviderUnreachable"

// ShowUnreachable returns the remote pod as not Ready while the local pod is marked as unreachable
// (v1alpha1.UnreachableAnnotation). The object in the cache does not change. The broker cannot write the condition
// itself: the last status of the remote pod would overwrite it.
func ShowUnreachable(local, remote *corev1.Pod) *corev1.Pod {
	value, marked := local.Annotations[v1alpha1.UnreachableAnnotation]
	if !marked {
		return remote
	}
	shown := *remote
	shown.Status.Conditions = slices.Clone(remote.Status.Conditions)
	for i := range shown.Status.Conditions {
		condition := &shown.Status.Conditions[i]
		if condition.Type != corev1.PodReady || condition.Status != corev1.ConditionTrue {
			continue
		}
		condition.Status, condition.Reason = corev1.ConditionFalse, reasonUnreachable
		condition.Message = v1alpha1.UnreachableMessage(local)
		// The time comes from the annotation: the current time would cause a write at every reconciliation.
		if since, err := time.Parse(time.RFC3339, value); err == nil {
			condition.LastTransitionTime = metav1.NewTime(since.Truncate(time.Second))
		}
	}
	return &shown
}
