package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ProviderCluster is a cluster that shares resources with the broker. The broker makes one for every cluster of which
// it has a VirtualNode; its name is the cluster's id.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pcl,categories=liqo
// +kubebuilder:printcolumn:name="READY",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="ENABLED",type=boolean,JSONPath=`.spec.enabled`
// +kubebuilder:printcolumn:name="PODS",type=integer,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.summary.cpu`,description="assigned/granted"
// +kubebuilder:printcolumn:name="MEMORY",type=string,JSONPath=`.status.summary.memory`,description="assigned/granted"
// +kubebuilder:printcolumn:name="UPTIME",type=string,JSONPath=`.status.summary.uptime`,description="over 24 hours"
// +kubebuilder:printcolumn:name="LATENCY",type=string,JSONPath=`.status.summary.latency`,description="of the API server"
// +kubebuilder:printcolumn:name="PRICE",type=string,JSONPath=`.spec.attributes.price`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="REGION",type=string,JSONPath=`.spec.attributes.region`,priority=1
// +kubebuilder:printcolumn:name="CORDONED",type=boolean,JSONPath=`.spec.cordoned`,priority=1
// +kubebuilder:printcolumn:name="DRAINED",type=string,JSONPath=`.status.conditions[?(@.type=="Drained")].status`,priority=1
// +kubebuilder:printcolumn:name="MOVED",type=integer,JSONPath=`.status.kpis.movedAway`,description="pods moved away",priority=1
// +kubebuilder:printcolumn:name="MESSAGE",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type ProviderCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec ProviderClusterSpec `json:"spec,omitempty"`
	// +optional
	Status ProviderClusterStatus `json:"status,omitempty"`
}

// ProviderClusterSpec is what an administrator sets for a provider.
type ProviderClusterSpec struct {
	// Enabled is whether the provider takes part. A disabled one gets no new pod; the pods there stay.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
	// Cordoned keeps new pods away for a while, as of a cordoned Node; the pods there stay.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`
	// Drain moves the pods elsewhere and keeps new ones away, as of a drained Node.
	// +optional
	Drain bool `json:"drain,omitempty"`
	// Attributes are added to what the provider itself advertises as labels, and win over them. The broker knows
	// "price" (a decimal number, per CPU and hour) and shows "region"; criteria may use any.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!('' in self)",message="an attribute needs a name"
	// +kubebuilder:validation:XValidation:rule="!('price' in self) || self['price'].matches('^[0-9]{1,9}([.][0-9]{1,9})?$')",message="attributes.price must be a decimal number, such as 0.042"
	Attributes map[string]string `json:"attributes,omitempty"`
}

// IsEnabled reports whether the provider takes part, which is the default.
func (s *ProviderClusterSpec) IsEnabled() bool { return s.Enabled == nil || *s.Enabled }

// Region returns the region that an administrator set; "" if none did. A label that the provider advertises does not count.
func (s *ProviderClusterSpec) Region() string { return s.Attributes["region"] }

// ProviderClusterStatus is what the broker knows of a provider.
type ProviderClusterStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready, and what it is made of: Reachable, KubeletReady, NetworkReady; Clean after an outage.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// VirtualNodes are the slices that the provider granted.
	// +optional
	// +listType=map
	// +listMapKey=name
	VirtualNodes []VirtualNodeStatus `json:"virtualNodes,omitempty"`
	// Resources is their sum.
	// +optional
	Resources Resources `json:"resources,omitempty"`
	// Pods is how many pods are assigned to the provider.
	// +optional
	// +kubebuilder:default=0
	Pods int32 `json:"pods"`
	// KPIs is how well the provider does.
	// +optional
	KPIs KPIs `json:"kpis,omitempty"`
	// Summary is for the columns of kubectl.
	// +optional
	Summary Summary `json:"summary,omitempty"`
}

// Types of conditions of a ProviderCluster.
const (
	// ProviderReady: the provider can be given pods.
	ProviderReady = "Ready"
	// ProviderReachable: its API server answers the broker's probe. False if it is silent, which moves its pods. Unknown if it is
	// alive and cannot be used.
	ProviderReachable = "Reachable"
	// ProviderKubeletReady: the lease of the virtual kubelet of at least one of its VirtualNodes is live.
	ProviderKubeletReady = "KubeletReady"
	// ProviderNetworkReady: the peering's network is up, or its module is off.
	ProviderNetworkReady = "NetworkReady"
	// ProviderClean: it runs nothing that was moved away while it could not be reached.
	ProviderClean = "Clean"
	// ProviderDrained: with spec.drain, no pod is assigned there or leaving any more; absent without.
	ProviderDrained = "Drained"
	// ProviderStartsPods: False while slices take no pods because those assigned to them did not start; absent without.
	ProviderStartsPods = "StartsPods"
	// ProviderSlicesGranted: False while it denies ResourceSlices, with its reason; absent without.
	ProviderSlicesGranted = "SlicesGranted"
)

// Reasons of the conditions of a ProviderCluster.
const (
	ReasonReady             = "Ready"
	ReasonNotReady          = "NotReady"
	ReasonNotPeered         = "NotPeered"
	ReasonNotProbedYet      = "NotProbedYet"
	ReasonNotAnsweredYet    = "NotAnsweredYet"
	ReasonAnswers           = "Answers"
	ReasonNoAnswer          = "NoAnswer"
	ReasonRejects           = "Rejects"
	ReasonNoKubeconfig      = "NoKubeconfig"
	ReasonReadyzFails       = "ReadyzFails"
	ReasonKubeletReaches    = "KubeletReaches"
	ReasonLeaseLive         = "LeaseLive"
	ReasonLeaseLost         = "LeaseLost"
	ReasonServesAnotherNode = "ServesAnotherNode"
	ReasonConnected         = "ConnectedOrDisabled"
	ReasonNotConnected      = "NotConnected"
	ReasonNothingLeft       = "NothingLeft"
	ReasonMovedPodsLeft     = "MovedPodsLeft"
	ReasonPodsLeft          = "PodsLeft"
	ReasonEmpty             = "Empty"
	ReasonPodsDoNotStart    = "PodsDoNotStart"
	// ReasonDenied stands for the reason of a provider that gives none that a condition can have.
	ReasonDenied = "Denied"
)

// VirtualNodeStatus is one slice of a provider.
type VirtualNodeStatus struct {
	// Name of the VirtualNode.
	Name string `json:"name"`
	// Ready reports whether its virtual kubelet is alive and serves the broker's node.
	Ready bool `json:"ready"`
	// Reason is why no pod can be assigned to it whatever the pod is, in the words of a verdict; empty if pods can be.
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Resources Resources `json:"resources,omitempty"`
	// Pods is how many pods are assigned to it.
	Pods int32 `json:"pods"`
	// Closed is set while it takes no pods, but for one trial a minute, because pods that were assigned to it did not start.
	// +optional
	Closed *Closed `json:"closed,omitempty"`
	// Reserved is set while capacity is kept free for a pod that has waited for long.
	// +optional
	Reserved *Reserved `json:"reserved,omitempty"`
}

// Closed is since when a slice takes no pods, and whose did not start.
type Closed struct {
	Since metav1.Time `json:"since"`
	// Owners are the consumers, and the namespaces of this cluster, whose pods did not start. A slice is closed for the pods of
	// one of them if that is the only one, and otherwise for all.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Owners []string `json:"owners,omitempty"`
}

// Reserved is what is kept free for a pod.
type Reserved struct {
	// Pod is its namespace and name, UID its UID.
	Pod string `json:"pod"`
	// +optional
	UID   types.UID   `json:"uid,omitempty"`
	Since metav1.Time `json:"since"`
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// Resources are amounts of what a provider granted.
type Resources struct {
	// Granted is what the provider promised.
	// +optional
	Granted corev1.ResourceList `json:"granted,omitempty"`
	// Assigned is what the pods assigned there request.
	// +optional
	Assigned corev1.ResourceList `json:"assigned,omitempty"`
	// Free is the rest; never negative.
	// +optional
	Free corev1.ResourceList `json:"free,omitempty"`
}

// Summary are the columns that kubectl cannot compute.
type Summary struct {
	// +optional
	CPU string `json:"cpu,omitempty"`
	// +optional
	Memory string `json:"memory,omitempty"`
	// +optional
	Uptime string `json:"uptime,omitempty"`
	// +optional
	Latency string `json:"latency,omitempty"`
}

// ProviderClusterList is a list of ProviderClusters.
//
// +kubebuilder:object:root=true
type ProviderClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProviderCluster `json:"items"`
}
