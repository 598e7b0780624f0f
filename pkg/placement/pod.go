package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/backoff"
	"github.com/capacitorset/liqo-broker-vk/pkg/cached"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
)

// ConsumerOf returns the id of the cluster that a namespace and its pods come from; "" is this one. The label alone is
// not enough: tenant namespaces have it as well. Liqo writes both when it creates the namespace for a NamespaceMap of
// the consumer (createNamespace in pkg/liqo-controller-manager/offloading/namespacemap-controller).
func ConsumerOf(namespace metav1.Object) string {
	if namespace.GetAnnotations()[consts.RemoteNamespaceManagedByAnnotationKey] == "" || TenantOf(namespace) != "" {
		return ""
	}
	return namespace.GetLabels()[consts.RemoteClusterID]
}

// NamespacesOf returns requests for the namespaces that may come from a cluster, including its tenant namespace.
func NamespacesOf(ctx context.Context, reader client.Reader, cluster string) ([]reconcile.Request, error) {
	var list corev1.NamespaceList
	if err := reader.List(ctx, &list, client.MatchingLabels{consts.RemoteClusterID: cluster}); err != nil {
		return nil, err
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests, nil
}

// TenantOf returns the id of the cluster of a tenant namespace; "" if it is not a tenant namespace. An object in it
// with the id of another cluster does not count: Liqo's peering lets a consumer's control plane write NamespaceMaps,
// with any label and status, in its own (ClusterRole liqo-remote-controlplane).
func TenantOf(namespace metav1.Object) string {
	labels := namespace.GetLabels()
	if labels[consts.TenantNamespaceLabel] != "true" {
		return ""
	}
	return labels[consts.RemoteClusterID]
}

// OffloadsTo returns the id of the cluster that a NamespaceMap offloads namespaces of this one to, if the map is in the
// tenant namespace of that cluster; "" for a map that a peer sent, whose namespaces are the peer's. A peer may be
// provider and consumer.
func OffloadsTo(m *offloadingv1beta1.NamespaceMap) string {
	if m.Labels[consts.ReplicationOriginLabel] != "" {
		return ""
	}
	return m.Labels[consts.RemoteClusterID]
}

// Reclaimed reports whether a pod had to leave its provider because its consumer used more than its grant, and was not
// assigned since.
func Reclaimed(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.ReclaimedAnnotation] != "" }

// PlaceOf returns the place whose capacity a pod uses: where it is assigned, or where it is moving from; the zero Place
// if there is none. A pod that has ended and lost the label is no longer moving from a VirtualNode.
func PlaceOf(pod *corev1.Pod) scheduler.Place {
	if at := AssignedTo(pod); at != (scheduler.Place{}) || Terminal(pod) {
		return at
	}
	return MovingFrom(pod)
}

// AssignedTo returns the place where a pod is assigned; the zero Place if there is none. The provider must match as
// well as the name of the VirtualNode, as for virtual kubelets: another provider may have a VirtualNode of that name.
func AssignedTo(pod *corev1.Pod) scheduler.Place {
	return placeOf(pod.Labels[v1alpha1.ProviderLabel], pod.Labels[v1alpha1.VirtualNodeLabel])
}

// MovingFrom returns the place that a pod is moving from; the zero Place if there is none.
func MovingFrom(pod *corev1.Pod) scheduler.Place {
	return placeOf(pod.Annotations[v1alpha1.MovingFromProviderAnnotation], pod.Annotations[v1alpha1.MovingFromAnnotation])
}

func placeOf(provider, virtualNode string) scheduler.Place {
	if virtualNode == "" {
		return scheduler.Place{}
	}
	return scheduler.Place{Provider: provider, VirtualNode: virtualNode}
}

// AssignmentOf returns the capacity that a pod uses at a VirtualNode. An ended pod uses its requests until its
// ShadowPod is deleted, which is known when the pod is deleted or loses the label: the quota of the slice counts a
// ShadowPod in any phase (peeringInfo in Liqo's pkg/webhooks/shadowpod). As in that quota, an ended pod does not count
// as a pod, nor as a pod of its application.
func AssignmentOf(pod *corev1.Pod, at scheduler.Place) scheduler.Assignment {
	a := scheduler.Assignment{
		UID: pod.UID, Place: at, App: appOf(pod), Requests: resources.PodRequests(&pod.Spec), Ended: Terminal(pod),
	}
	if a.Ended {
		a.App = ""
		delete(a.Requests, corev1.ResourcePods)
		return a
	}
	own, _ := constraintsOf(pod) // A pod with invalid ones repels no others.
	a.Peer = constraints.PeerOf(pod, own)
	return a
}

// Terminal reports whether a pod has succeeded or failed.
func Terminal(pod *corev1.Pod) bool { return TerminalPhase(pod.Status.Phase) }

// TerminalPhase reports whether a phase means that the pod has ended.
func TerminalPhase(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// Started reports whether a container of a pod was started.
func Started(status *corev1.PodStatus) bool {
	return status.Phase == corev1.PodRunning ||
		slices.ContainsFunc(slices.Concat(status.InitContainerStatuses, status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
			return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
		})
}

// Taken reports whether a provider has begun to run a pod, which may then be Pending for as long as its init containers
// and its images take: one of its containers was started, or its sandbox is ready and no container fails to be created.
// A kubelet writes statuses of all containers whenever it writes that the sandbox is ready (generateAPIPodStatus in
// Kubernetes' pkg/kubelet): the condition alone is from another provider.
func Taken(status *corev1.PodStatus) bool {
	if Started(status) || status.Phase != corev1.PodPending && status.Phase != "" {
		return true
	}
	containers := slices.Concat(status.InitContainerStatuses, status.ContainerStatuses)
	ready := len(containers) > 0 && slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
	return ready && !slices.ContainsFunc(containers, func(s corev1.ContainerStatus) bool {
		waiting := s.State.Waiting // Its image cannot be pulled, for example.
		return waiting != nil && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing"
	})
}

// OwnFault reports whether a pod has not started for a reason of its own: a container waits because its image or its
// configuration is not available, which is no failure of the provider. The reasons are the kubelet's
// (pkg/kubelet/images/types.go, pkg/kubelet/kuberuntime/kuberuntime_container.go of Kubernetes).
func OwnFault(status *corev1.PodStatus) bool {
	return slices.ContainsFunc(slices.Concat(status.InitContainerStatuses, status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		if s.State.Waiting == nil {
			return false
		}
		switch s.State.Waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "SignatureValidationFailed",
			"CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return true
		}
		return false
	})
}

// EndedByItself reports whether a pod, which may be being deleted, has ended and is not restarted in its place. A
// kubelet writes a terminal phase on each pod that it removes, and so does the pod garbage collector, before it deletes
// the pods of a Node that no longer exists (pkg/controller/podgc of Kubernetes).
func EndedByItself(status *corev1.PodStatus, deleted bool) bool {
	return TerminalPhase(status.Phase) && !deleted && !Collected(status)
}

// Collected reports whether the pod garbage collector has made a pod Failed, before it force-deletes it.
func Collected(status *corev1.PodStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "DeletionByPodGC"
	})
}

// MessageEndUnknown is the message of a container whose end no virtual kubelet saw (podstatus.Unknown).
const MessageEndUnknown = "The final state of the container is unknown"

// EndUnknown reports whether the virtual kubelet of a pod that was deleted found no pod at the provider, and had not
// seen its end: it was deleted there, too, or ended while no virtual kubelet ran.
func EndUnknown(status *corev1.PodStatus) bool {
	unknown := func(c corev1.ContainerStatus) bool {
		return c.State.Terminated != nil && c.State.Terminated.Message == MessageEndUnknown
	}
	return slices.ContainsFunc(status.ContainerStatuses, unknown) || slices.ContainsFunc(status.InitContainerStatuses, unknown)
}

// DisruptedThere reports whether a pod has ended because its provider evicted or deleted it there: by the API, a drain,
// a taint, preemption, the pressure or shutdown of a node. The reasons are from Kubernetes' pkg/kubelet (eviction,
// preemption, nodeshutdown) and from Liqo's virtual kubelet.
func DisruptedThere(pod *corev1.Pod) bool {
	target := Condition(pod, corev1.DisruptionTarget)
	return target != nil && target.Status == corev1.ConditionTrue || pod.Status.Phase == corev1.PodFailed &&
		slices.Contains([]string{"Evicted", "Preempting", "NodeShutdown", "Terminated", forge.RemotePodTerminatedReason}, pod.Status.Reason)
}

// EndedStatus returns the patch for the status of a pod that has ended at its provider.
func EndedStatus(there *corev1.PodStatus) map[string]any {
	return map[string]any{
		"phase": there.Phase, "reason": there.Reason, "message": there.Message, "conditions": there.Conditions,
		"containerStatuses": there.ContainerStatuses, "initContainerStatuses": there.InitContainerStatuses,
	}
}

// NeverAccepted reports whether the API server rejects a status by its content, so that a retry would be rejected too.
func NeverAccepted(err error) bool {
	return kerrors.IsInvalid(err) || kerrors.IsBadRequest(err) || kerrors.IsRequestEntityTooLargeError(err)
}

// appOf returns the application of a pod by the labels that Kubernetes recommends, in its namespace; "" if it has none.
// Owners cannot be used: the pods of a consumer are each owned by a ShadowPod of their own.
func appOf(pod *corev1.Pod) string {
	key, name := applicationLabel(pod)
	if name == "" {
		return ""
	}
	return pod.Namespace + "/" + key + "=" + name
}

// ApplicationOf returns the name of a pod's application, by the same labels; "" if it has none.
func ApplicationOf(pod *corev1.Pod) string {
	_, name := applicationLabel(pod)
	return name
}

func applicationLabel(pod *corev1.Pod) (key, value string) {
	for _, key := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/name", "app", "k8s-app"} {
		if value := pod.Labels[key]; value != "" {
			return key, value
		}
	}
	return "", ""
}

// Pod is a pod as the scheduler sees it, with its criteria.
func (c *Criteria) Pod(pod *corev1.Pod, namespace *corev1.Namespace) *scheduler.Pod {
	return &scheduler.Pod{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Consumer: ConsumerOf(namespace), Owner: OwnerOf(namespace),
		Account: AccountOf(pod, namespace), Reclaimed: Reclaimed(pod),
		First:  pod.Annotations[v1alpha1.AssignedAtAnnotation] == "" || Reclaimed(pod),
		Labels: pod.Labels, Annotations: pod.Annotations, App: appOf(pod),
		Requests: resources.PodRequests(&pod.Spec), Expression: c.Filter, Selections: c.Selections,
		Refused: backoff.Of(pod).Until(), Constraints: c.Constraints, Volumes: c.Volumes, Peer: constraints.PeerOf(pod, c.Constraints),
	}
}

// constraintsOf returns the constraints of a pod, including those that its consumer has sent.
func constraintsOf(pod *corev1.Pod) (*constraints.Constraints, error) {
	if pod.Annotations[cached.TooLargeAnnotation] != "" || cached.TooLarge(&pod.Spec) {
		return nil, fmt.Errorf("nodeSelector, affinity and topologySpreadConstraints have more than %d bytes", constraints.MaxSize)
	}
	var sent *constraints.Travelling
	if text := pod.Annotations[v1alpha1.ConstraintsAnnotation]; text != "" {
		var err error
		if sent, err = constraints.Parse(text); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", v1alpha1.ConstraintsAnnotation, err)
		}
	}
	own := constraints.Of(pod, sent)
	if exceeded := own.Exceeded(); exceeded != "" {
		return nil, errors.New(exceeded)
	}
	return own, nil
}

// Condition returns the condition of a pod of a type; nil if it has none.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Ready reports whether the condition Ready of a pod is True.
func Ready(pod *corev1.Pod) bool {
	condition := Condition(pod, corev1.PodReady)
	return condition != nil && condition.Status == corev1.ConditionTrue
}
