package v1alpha1

import (
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Labels of a pod that is bound to the broker's node. Only the broker writes them; the admission policy in deploy/
// refuses them from anyone else.
const (
	// VirtualNodeLabel names the VirtualNode that forwards the pod: this label decides, with the next one, where the
	// pod runs.
	VirtualNodeLabel = "brokering.liqo.io/virtual-node"
	// ProviderLabel is the id of the provider cluster of that VirtualNode: other providers may have one of that name. It is
	// for people and for spreading, too. Both labels are written and removed together.
	ProviderLabel = "brokering.liqo.io/provider"
)

// NoProviderAnnotation is on the broker's Node while the broker keeps it unschedulable, because no provider can be
// given pods.
const NoProviderAnnotation = "brokering.liqo.io/no-provider"

// NodeUnguarded is a condition of the broker's Node: True while the policies of deploy/guard.yaml are not in force, without
// which the broker assigns, moves and offers nothing.
const NodeUnguarded = "brokering.liqo.io/Unguarded"

// Annotations of a pod that only the broker writes.
const (
	// DecisionAnnotation is, in short, why the pod is where it is.
	DecisionAnnotation = "brokering.liqo.io/decision"
	// AssignedAtAnnotation is when the pod was assigned to the provider where it is (RFC 3339).
	AssignedAtAnnotation = "brokering.liqo.io/assigned-at"
	// MovingFromAnnotation names the VirtualNode whose provider must have removed the pod before another one gets it.
	MovingFromAnnotation = "brokering.liqo.io/moving-from"
	// MovingFromProviderAnnotation is the id of the provider cluster of that VirtualNode, which may be gone.
	MovingFromProviderAnnotation = "brokering.liqo.io/moving-from-provider"
	// RemoteNamespaceAnnotation is the namespace of the pod at its provider, which is asked there about the pod also when Liqo's
	// NamespaceMap is gone.
	RemoteNamespaceAnnotation = "brokering.liqo.io/remote-namespace"
	// UnreachableAnnotation is when the provider cluster where the pod runs became unreachable (RFC 3339). While the
	// pod has it, the virtual kubelet shows the pod as not Ready.
	UnreachableAnnotation = "brokering.liqo.io/unreachable-since"
	// TriesAnnotation is where the pod was assigned without one of its containers being started (pkg/backoff). Without it
	// the pod is tried everywhere again.
	TriesAnnotation = "brokering.liqo.io/tries"
	// TraceparentAnnotation is the trace of the pod's assignment (W3C Trace Context), if the broker traces: the virtual
	// kubelet continues it.
	TraceparentAnnotation = "brokering.liqo.io/traceparent"
)

// ReleasedAnnotation is on a pod that moves when the virtual kubelet that forwarded it will not make another ShadowPod
// of it: the value is that of Assignment, with the VirtualNode that it leaves. Only virtual kubelets and the broker
// write it.
const ReleasedAnnotation = "brokering.liqo.io/released"

// NotForwardedAnnotation is on a released pod of which the virtual kubelet made no ShadowPod, such as one that was refused: the provider
// has nothing to make a pod of. The value is that of ReleasedAnnotation.
const NotForwardedAnnotation = "brokering.liqo.io/not-forwarded"

// PodCreationTimeout is how long after the deletion of a ShadowPod Liqo's controller at the provider may still create its pod: it has read
// the ShadowPod, and one webhook holds the creation for 30 s at most. PodCreationDeadline is the most that an API server lets a request
// take by default (--request-timeout).
const (
	PodCreationTimeout  = 30 * time.Second
	PodCreationDeadline = time.Minute
)

// CreationTimeout is how long a virtual kubelet lets the creation of a ShadowPod take, after it has read that the pod
// is still assigned to it. The API server of the provider ends the request then as well: it is told how much of the
// time is left (parameter timeout, WithRequestDeadline in k8s.io/apiserver). Liqo's webhook has 10 s of it.
// CreationDeadline allows for the way there, and for a write to etcd that was under way, which has 7 s.
const (
	CreationTimeout  = 15 * time.Second
	CreationDeadline = CreationTimeout + 10*time.Second
)

// PodUIDAnnotation is on a ShadowPod, and so on its pod: the UID of the pod that it was made of. A pod of the same name may
// come after it. In a chain of clusters each writes its own.
const PodUIDAnnotation = "brokering.liqo.io/pod-uid"

// ConnectingAnnotation is on the lease of a virtual kubelet while the replica with this identity holds it and does not
// serve its pods yet, or does not reach the remote cluster. A virtual kubelet that never writes it, such as Liqo's, serves them as soon as it has the lease.
const ConnectingAnnotation = "brokering.liqo.io/connecting"

// AnsweredAgoAnnotation is on the lease of a virtual kubelet: the identity of the replica, a space, and how long before the renewal the
// provider cluster answered it last (a Go duration). It is missing if it has not, or is not asked (--node-ping-interval=0). That of another
// replica than the holder, which may know no such annotation and keep it, says nothing.
const AnsweredAgoAnnotation = "brokering.liqo.io/answered-ago"

// Assignment identifies one assignment of a pod to a VirtualNode.
func Assignment(virtualNode string, pod *corev1.Pod) string {
	return virtualNode + "/" + pod.Annotations[AssignedAtAnnotation]
}

// Annotations by which virtual kubelets report where a forwarded pod really runs. The virtual kubelet of the last cluster
// that forwards a pod writes them on its own pod, and those of the clusters before it copy them. Only virtual kubelets
// and the broker write them.
const (
	// RootIPAnnotation is the address of the pod in the cluster where it runs, as that cluster sees it.
	RootIPAnnotation = "brokering.liqo.io/root-ip"
	// RootClusterAnnotation is the id of that cluster.
	RootClusterAnnotation = "brokering.liqo.io/root-cid"
	// RemoteIPAnnotation is the address that the pod of the next cluster shows, where a remote IPAM is asked how to
	// reach it: what the address of this pod stands for.
	RemoteIPAnnotation = "brokering.liqo.io/remote-ip"
	// InnerIPAnnotation is the address under which this cluster itself reaches the pod, where the pod shows the one
	// under which other clusters do (--opaque-addresses).
	InnerIPAnnotation = "brokering.liqo.io/inner-ip"
)

// AssignedAt returns when a pod was assigned to the provider where it is; its creation if AssignedAtAnnotation is
// missing or is no time.
func AssignedAt(pod *corev1.Pod) time.Time {
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[AssignedAtAnnotation])
	if err != nil {
		return pod.CreationTimestamp.Time
	}
	return at
}

// RootAnnotations returns the annotations that only virtual kubelets and the broker write.
func RootAnnotations() []string {
	return []string{RootIPAnnotation, RootClusterAnnotation, RemoteIPAnnotation, InnerIPAnnotation, ReleasedAnnotation, NotForwardedAnnotation}
}

// BrokerAnnotations returns the annotations of a pod that only the broker writes.
func BrokerAnnotations() []string {
	return []string{
		DecisionAnnotation, AssignedAtAnnotation, MovingFromAnnotation, MovingFromProviderAnnotation, UnreachableAnnotation,
		TraceparentAnnotation, TriesAnnotation, RemoteNamespaceAnnotation,
	}
}

// Annotations by which the owner of a pod sets its criteria.
const (
	// FilterAnnotation is a CEL expression, true for every provider that may run the pod.
	FilterAnnotation = "brokering.liqo.io/filter"
	// PolicyAnnotation names the PlacementPolicy for the pod, instead of the one whose selectors match.
	PolicyAnnotation = "brokering.liqo.io/policy"
	// FailoverAnnotation is Move or Never (FailoverMode).
	FailoverAnnotation = "brokering.liqo.io/failover"
)

// AddressAnnotation is the address of a pod that Liqo must map again, because it mapped another one before. It is written
// so that Liqo reconciles the pod, and never read.
const AddressAnnotation = "brokering.liqo.io/address"

// RenewedByAnnotation is on the lease of the broker's Node while virtual kubelets renew it because no broker does. It names the
// VirtualNode of the last one.
const RenewedByAnnotation = "brokering.liqo.io/renewed-by"

// BrokerNodeLabel marks the broker's Node.
const BrokerNodeLabel = "brokering.liqo.io/broker-node"

// EndpointIPLabel marks the IPs that the broker makes: for endpoints which consumers reflected to its cluster, and for
// inner addresses of pods.
const EndpointIPLabel = "brokering.liqo.io/endpoint"

// ForConsumersLabel is the label of an IP that an administrator made for all consumers, with the value "true": the gateways let
// consumers connect to it.
const ForConsumersLabel = "brokering.liqo.io/for-consumers"

// IsolateLabel is a label of tenant namespaces. With the value "false" the gateway of the peer restricts nothing.
const IsolateLabel = "brokering.liqo.io/isolate"

// ConditionAssigned is the condition of a pod that reports whether a provider was found for it.
const ConditionAssigned = "brokering.liqo.io/Assigned"

// ReasonEvictionByBroker is the reason of the condition DisruptionTarget of a pod that the broker ends because its provider is drained or
// lost, and that must not be started again.
const ReasonEvictionByBroker = "EvictionByBroker"

// ReasonBeyondGrant is the reason of ConditionAssigned of a new pod with which its consumer would have more than this cluster granted it.
const ReasonBeyondGrant = "BeyondGrant"

// ConditionRefusedPrefix and the name of a VirtualNode are the type of the condition of a pod by which the virtual
// kubelet of that VirtualNode reports to the broker that its provider cluster does not take the pod (pkg/refusal).
const ConditionRefusedPrefix = "refused.brokering.liqo.io/"

// ConditionNameCollision is the condition of a namespace whose name other consumers' namespaces would have as well.
const ConditionNameCollision = "brokering.liqo.io/NameCollision"

// EndpointIPName is the name of such an IP, by the address that it maps.
func EndpointIPName(address netip.Addr) string {
	return "liqo-broker-endpoint-" + strings.NewReplacer(".", "-", ":", "-").Replace(address.StringExpanded())
}

// ManagedByBroker is the value of the label app.kubernetes.io/managed-by on objects that the broker makes for consumers
// and keeps as they were made, for as long as they carry it.
const ManagedByBroker = "liqo-broker"

// Labels of the virtual node that a consumer sees.
const (
	// ProvidersLabel is how many provider clusters are behind it.
	ProvidersLabel = "brokering.liqo.io/providers"
	// RegionsLabel is where they are, as "eu_us": the attributes "region", sorted.
	RegionsLabel = "brokering.liqo.io/regions"
)
