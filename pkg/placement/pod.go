package placement

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"

	"github.com/liqotech/liqo/pkg/consts"
)

// ConsumerOf is the id of the cluster that the pods of a namespace come from; "" is this one.
func ConsumerOf(namespace *corev1.Namespace) string {
	return namespace.Labels[consts.RemoteClusterID]
}

// TenantOf is the id of the cluster whose peering lives in a namespace; "" if it is no tenant namespace. What is in there
// and bears the id of another cluster is not to be believed: Liqo's peering lets a consumer's control plane write
// NamespaceMaps, with any label and status, in its own (ClusterRole liqo-remote-controlplane).
func TenantOf(namespace *corev1.Namespace) string {
	if namespace.Labels[consts.TenantNamespaceLabel] != "true" {
		return ""
	}
	return namespace.Labels[consts.RemoteClusterID]
}

// PlaceOf is the VirtualNode where a pod takes room: where it is assigned, or where it is leaving; "" if nowhere.
func PlaceOf(pod *corev1.Pod) string {
	if at := pod.Labels[v1alpha1.VirtualNodeLabel]; at != "" {
		return at
	}
	return pod.Annotations[v1alpha1.MovingFromAnnotation]
}

// Terminal says whether a pod has ended for good.
func Terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// AppOf names the application of a pod by the labels that Kubernetes recommends, in its namespace; "" if it has none.
// Owners are of no use: the pods of a consumer are each owned by a ShadowPod of their own.
func AppOf(pod *corev1.Pod) string {
	for _, key := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/name", "app", "k8s-app"} {
		if value := pod.Labels[key]; value != "" {
			return pod.Namespace + "/" + key + "=" + value
		}
	}
	return ""
}

// Pod is a pod as the scheduler sees it, with what it asks for.
func (c *Criteria) Pod(pod *corev1.Pod, namespace *corev1.Namespace) *scheduler.Pod {
	return &scheduler.Pod{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Consumer: ConsumerOf(namespace),
		Labels: pod.Labels, Annotations: pod.Annotations, App: AppOf(pod),
		Requests: scheduler.PodRequests(&pod.Spec), Expression: c.Filter, Selections: c.Selections,
	}
}
