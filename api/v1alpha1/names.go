package v1alpha1

import (
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Labels of a pod that is bound to the broker's node. Only the broker writes them; the admission policy in deploy/
// rejects writes by anyone else.
const (
	// VirtualNodeLabel names the VirtualNode that forwards the pod. Together with ProviderLabel it determines where the
	// pod runs.
	VirtualNodeLabel = "brokering.liqo.io/virtual-node"
	// ProviderLabel is the id of the provider cluster of that VirtualNode, because VirtualNodes of different providers
	// may have the same name. Users and topology spreading use it, too. Both labels are written and removed together.
	ProviderLabel = "brokering.liqo.io/provider"
)

// NoProviderAnnotation is on the broker's Node while the broker keeps it unschedulable because pods cannot be assigned
// to any provider.
const NoProviderAnnotation = "brokering.liqo.io/no-provider"

// NodeUnguarded is a condition of the broker's Node: True while the policies of deploy/guard.yaml are not in force.
// Without them the broker assigns, moves and offers nothing.
const NodeUnguarded = "brokering.liqo.io/Unguarded"

// Annotations of a pod that only the broker writes.
const (
	// DecisionAnnotation is a short reason for the pod's current assignment.
	DecisionAnnotation = "brokering.liqo.io/decision"
	// AssignedAtAnnotation is when the pod was assigned to the provider where it is (RFC 3339).
	AssignedAtAnnotation = "brokering.liqo.io/assigned-at"
	// MovingFromAnnotation names the VirtualNode whose provider must have removed the pod before the pod is assigned to
	// another one.
	MovingFromAnnotation = "brokering.liqo.io/moving-from"
	// MovingFromProviderAnnotation is the id of the provider cluster of that VirtualNode, which may no longer exist.
	MovingFromProviderAnnotation = "brokering.liqo.io/moving-from-provider"
	// RemoteNamespaceAnnotation is the pod's namespace at its provider. The broker looks the pod up there even if
	// Liqo's NamespaceMap no longer exists.
	RemoteNamespaceAnnotation = "brokering.liqo.io/remote-namespace"
	// UnreachableAnnotation is when the provider cluster where the pod runs became unreachable (RFC 3339). While the
	// pod has it, the virtual kubelet shows the pod as not Ready.
	UnreachableAnnotation = "brokering.liqo.io/unreachable-since"
	// ReclaimedAnnotation is when the pod had to leave its provider because its consumer used more than its grant, and
	// others had a right to that (RFC 3339). Until it is assigned again the grant bounds it like a new pod.
	ReclaimedAnnotation = "brokering.liqo.io/reclaimed-at"
	// TriesAnnotation records the VirtualNodes to which the pod was assigned without any of its containers being
	// started (pkg/backoff). If it is removed, the pod can be assigned to all of them again.
	TriesAnnotation = "brokering.liqo.io/tries"
	// TraceparentAnnotation is the trace of the pod's assignment (W3C Trace Context), if tracing is enabled in the
	// broker. The virtual kubelet continues this trace.
	TraceparentAnnotation = "brokering.liqo.io/traceparent"
)

// ReleasedAnnotation is set on a moving pod once the virtual kubelet that forwarded it will not create another
// ShadowPod for it. The value is the Assignment to the VirtualNode that the pod leaves. Only virtual kubelets and the
// broker write it.
const ReleasedAnnotation = "brokering.liqo.io/released"

// NotForwardedAnnotation is set on a released pod if the virtual kubelet created no ShadowPod for it, for example
// because the provider rejected it. The provider then has nothing to create a pod from. The value is the same as
// ReleasedAnnotation's.
const NotForwardedAnnotation = "brokering.liqo.io/not-forwarded"

// PodCreationTimeout is how long after the deletion of a ShadowPod Liqo's controller at the provider may still create
// its pod: the controller has already read the ShadowPod, and one webhook delays the creation by up to 30 s.
// PodCreationDeadline is an API server's default limit for one request (--request-timeout).
const (
	PodCreationTimeout  = 30 * time.Second
	PodCreationDeadline = time.Minute
)

// CreationTimeout is how long the creation of a ShadowPod may take after the virtual kubelet has read that the pod is
// still assigned to it. The provider's API server ends the request at the same time: the request carries the remaining
// time (parameter timeout, WithRequestDeadline in k8s.io/apiserver). Liqo's webhook may use 10 s of it.
// CreationDeadline adds time for the request to arrive, and for a write to etcd that has already begun, which may take
// 7 s.
const (
	CreationTimeout  = 15 * time.Second
	CreationDeadline = CreationTimeout + 10*time.Second
)

// PodUIDAnnotation is set on a ShadowPod, and therefore on its pod: the UID of the pod that it was created from. A
// later pod may have the same name. In a chain of clusters, each cluster writes its own value.
const PodUIDAnnotation = "brokering.liqo.io/pod-uid"

// ConnectingAnnotation is on the lease of a virtual kubelet while the replica with this identity holds it but does not
// serve its pods yet, or does not reach the remote cluster. A virtual kubelet that never writes it, such as Liqo's,
// serves its pods as soon as it has the lease.
const ConnectingAnnotation = "brokering.liqo.io/connecting"

// AnsweredAgoAnnotation is on the lease of a virtual kubelet. The value is the identity of the replica, a space, and
// how long before the renewal the provider cluster last answered this replica (a Go duration). The annotation is
// missing if the provider has not answered, or is not probed (--node-ping-interval=0). Readers ignore it if the
// identity is not the holder's: the holder may be a version that does not know this annotation and keeps it.
const AnsweredAgoAnnotation = "brokering.liqo.io/answered-ago"

// Assignment identifies one assignment of a pod to a VirtualNode.
func Assignment(virtualNode string, pod *corev1.Pod) string {
	return virtualNode + "/" + pod.Annotations[AssignedAtAnnotation]
}

// Annotations by which virtual kubelets report where a forwarded pod really runs. The virtual kubelet of the last
// cluster that forwards a pod writes them on its own pod; the virtual kubelets of the clusters before it copy them.
// Only virtual kubelets and the broker write them.
const (
	// RootIPAnnotation is the address of the pod in the cluster where it runs, as that cluster sees it.
	RootIPAnnotation = "brokering.liqo.io/root-ip"
	// RootClusterAnnotation is the id of that cluster.
	RootClusterAnnotation = "brokering.liqo.io/root-cid"
	// RemoteIPAnnotation is the address that the next cluster's pod shows, if a remote IPAM is used. The address of
	// this pod stands for it.
	RemoteIPAnnotation = "brokering.liqo.io/remote-ip"
	// InnerIPAnnotation is the address under which this cluster itself reaches the pod, if the pod's status shows the
	// address for other clusters (--opaque-addresses).
	InnerIPAnnotation = "brokering.liqo.io/inner-ip"
)

// AssignedAt returns when a pod was assigned to its current provider, or when it was created if AssignedAtAnnotation is
// missing or not a time.
func AssignedAt(pod *corev1.Pod) time.Time {
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[AssignedAtAnnotation])
	if err != nil {
		return pod.CreationTimestamp.Time
	}
	return at
}

// RootAnnotations returns the annotations that only virtual kubelets and the broker write.
func RootAnnotations() []string {
	return []string{
		RootIPAnnotation, RootClusterAnnotation, RemoteIPAnnotation, InnerIPAnnotation, ReleasedAnnotation, NotForwardedAnnotation,
	}
}

// BrokerAnnotations returns the annotations of a pod that only the broker writes.
func BrokerAnnotations() []string {
	return []string{
		DecisionAnnotation, AssignedAtAnnotation, MovingFromAnnotation, MovingFromProviderAnnotation, UnreachableAnnotation,
		ReclaimedAnnotation,
		TraceparentAnnotation, TriesAnnotation, RemoteNamespaceAnnotation,
	}
}

// ConstraintsAnnotation has the node selector and the affinity of a pod that came from a consumer (constraints.Travelling,
// JSON), which Liqo does not forward. The consumer's virtual kubelet sets it on the ShadowPod. If the owner of the pod
// has set it, this one is sent instead: Liqo's own virtual kubelet forwards it as every annotation.
const ConstraintsAnnotation = "brokering.liqo.io/constraints"

// Annotations by which the owner of a pod sets its criteria.
const (
	// FilterAnnotation is a CEL expression, true for every provider that may run the pod.
	FilterAnnotation = "brokering.liqo.io/filter"
	// PolicyAnnotation names the PlacementPolicy for the pod, instead of the one whose selectors match.
	PolicyAnnotation = "brokering.liqo.io/policy"
	// FailoverAnnotation is Move or Never (FailoverMode).
	FailoverAnnotation = "brokering.liqo.io/failover"
)

// AddressAnnotation is the address of a pod that Liqo must map again, because it mapped a previous one. It is written
// only to make Liqo reconcile the pod; nothing reads it.
const AddressAnnotation = "brokering.liqo.io/address"

// RenewedByAnnotation is on the lease of the broker's Node while virtual kubelets renew it because no broker does. It
// names the VirtualNode of the virtual kubelet that renewed it last.
const RenewedByAnnotation = "brokering.liqo.io/renewed-by"

// VolumeLabel marks the PersistentVolumes of the broker's Node, with the value "true". Each stands for a volume at the
// provider in its ProviderLabel: the first pod that uses it decides.
const VolumeLabel = "brokering.liqo.io/volume"

// MadeAtAnnotation is set on a PersistentVolume of the broker's Node once its claim was made at a provider, the value. If
// the claim is not there any more, it is not made again: its volume was lost.
const MadeAtAnnotation = "brokering.liqo.io/made-at"

// MakingAtAnnotation is set on such a PersistentVolume before its claim is made at a provider, the value: from then on the
// claim may be there, with data.
const MakingAtAnnotation = "brokering.liqo.io/making-at"

// ClaimOriginAnnotation is set on a PersistentVolumeClaim in a remote cluster: the claim that it was made from, by its UID or,
// behind the broker, by its PersistentVolume and the time when that was assigned to the provider. A later claim may have
// the same name, and a volume may come back to a provider.
const ClaimOriginAnnotation = "brokering.liqo.io/claim-origin"

// BrokerNodeLabel marks the broker's Node.
const BrokerNodeLabel = "brokering.liqo.io/broker-node"

// EndpointIPLabel marks the IPs that the broker creates for endpoints that consumers reflected to its cluster, and for
// inner addresses of pods.
const EndpointIPLabel = "brokering.liqo.io/endpoint"

// PriceLabelPrefix and the name of a resource, with "_" for "/", form the label by which a provider advertises a price; with
// "currency", the label of its currency.
const PriceLabelPrefix = "price.brokering.liqo.io/"

// ForConsumersLabel is the label of an IP that an administrator made for all consumers, with the value "true": the gateways let
// consumers connect to it.
const ForConsumersLabel = "brokering.liqo.io/for-consumers"

// IsolateLabel is a label of tenant namespaces. With the value "false", the gateway of the peer restricts nothing.
const IsolateLabel = "brokering.liqo.io/isolate"

// UnreachableMessage is the message of the condition Ready of a pod whose provider cannot be reached.
func UnreachableMessage(pod *corev1.Pod) string {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return "the provider cluster cannot be reached; its volumes are there"
		}
	}
	return "the provider cluster cannot be reached"
}

// ConditionAssigned is the condition of a pod that reports whether a provider was found for it.
const ConditionAssigned = "brokering.liqo.io/Assigned"

// ReasonEvictionByBroker is the reason of the condition DisruptionTarget of a pod that the broker ends because its
// provider is drained or lost, and that must not be restarted.
const ReasonEvictionByBroker = "EvictionByBroker"

// ReasonBudgetUsed is the reason of ConditionAssigned of a new pod whose consumer has used its budget of the month.
const ReasonBudgetUsed = "BudgetUsed"

// ReasonBeyondGrant is the reason of ConditionAssigned of a new pod that would exceed the resources granted to its
// consumer.
const ReasonBeyondGrant = "BeyondGrant"

// ReasonHeld is the reason of ConditionAssigned of a new pod that fits, and lets pods of consumers with smaller shares go
// first.
const ReasonHeld = "WaitsForShare"

// IsOfConsumer reports whether a reason of ConditionAssigned is about the pod's consumer, and not about providers.
func IsOfConsumer(reason string) bool {
	return reason == ReasonBeyondGrant || reason == ReasonBudgetUsed || reason == ReasonHeld
}

// ConditionRefusedPrefix and the name of a VirtualNode form the type of a pod condition. With it the virtual kubelet of
// that VirtualNode reports to the broker that its provider cluster rejects the pod (pkg/refusal).
const ConditionRefusedPrefix = "refused.brokering.liqo.io/"

// ConditionNameCollision is the condition of a namespace whose name is also claimed for namespaces of other consumers.
const ConditionNameCollision = "brokering.liqo.io/NameCollision"

// EndpointIPName returns the name of the IP that the broker creates for an address.
func EndpointIPName(address netip.Addr) string {
	return "liqo-broker-endpoint-" + strings.NewReplacer(".", "-", ":", "-").Replace(address.StringExpanded())
}

// ManagedByBroker is the value of the label app.kubernetes.io/managed-by on objects that the broker creates for
// consumers. It keeps them unchanged as long as they have this label.
const ManagedByBroker = "liqo-broker"

// Labels of the virtual node that a consumer sees.
const (
	// ProvidersLabel is the number of provider clusters behind it.
	ProvidersLabel = "brokering.liqo.io/providers"
	// RegionsLabel is the sorted values of their attribute "region", as "eu_us".
	RegionsLabel = "brokering.liqo.io/regions"
)
