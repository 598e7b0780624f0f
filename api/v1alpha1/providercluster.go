package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ProviderCluster represents a cluster that shares resources with the broker. The broker creates one for every cluster
// that it has a VirtualNode of. Its name is the id of the cluster.
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
// +kubebuilder:printcolumn:name="PRICE",type=string,JSONPath=`.status.summary.price`
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

// ProviderClusterSpec is set by an administrator.
type ProviderClusterSpec struct {
	// Enabled sets whether the broker uses the provider. No new pods are assigned to a disabled provider; its pods stay.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
	// Cordoned temporarily stops the assignment of new pods to the provider, as for a cordoned Node. Its pods stay.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`
	// Drain moves the pods of the provider to other providers and stops the assignment of new pods to it, as for a drained
	// Node.
	// +optional
	Drain bool `json:"drain,omitempty"`
	// Attributes are added to the labels that the provider advertises, and override labels with the same name. The broker
	// uses "price" (a decimal number, per CPU and hour) and shows "region". Filters and scores may use any attribute.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!('' in self)",message="an attribute needs a name"
	// +kubebuilder:validation:XValidation:rule="!('price' in self) || self['price'].matches('^[0-9]{1,9}([.][0-9]{1,9})?$')",message="attributes.price must be a decimal number, such as 0.042"
	Attributes map[string]string `json:"attributes,omitempty"`
	// Prices are the provider's prices, each list from a time on. Of several lists the one with the latest from that has
	// passed applies; of equal ones, the last. Without lists, attributes.price is the price of a CPU and hour, in a
	// currency that has no name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=24
	Prices []PriceList `json:"prices,omitempty"`
	// AcceptAdvertisedPrices lets the provider set its prices, by labels price.brokering.liqo.io/RESOURCE and
	// price.brokering.liqo.io/currency of its slices ("_" stands for the "/" of a resource). They replace spec.prices. A
	// provider that advertises low prices attracts pods.
	// +optional
	AcceptAdvertisedPrices bool `json:"acceptAdvertisedPrices,omitempty"`
}

// PriceList has the prices that apply from a time on.
type PriceList struct {
	// From is the time from which the prices apply. Not set: they apply before all others.
	// +optional
	From *metav1.Time `json:"from,omitempty"`
	// Currency is the code of the currency as in ISO 4217, such as EUR. Prices in different currencies are not compared.
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
	// PerHour has the price of an hour of each resource: of cpu per core, of memory, ephemeral-storage and hugepages per
	// GiB, of pods per pod, and of any other resource per unit. A resource that is not listed costs nothing.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage', 'pods'] || k.startsWith('hugepages-') || k.contains('/'))",message="perHour has names of resources: cpu, memory, ephemeral-storage, pods, hugepages-SIZE, or a name with a domain, such as nvidia.com/gpu"
	PerHour map[corev1.ResourceName]Decimal `json:"perHour"`
}

// Decimal is a number that is not negative, such as 0.042.
// +kubebuilder:validation:MaxLength=19
// +kubebuilder:validation:Pattern=`^[0-9]{1,9}([.][0-9]{1,9})?$`
type Decimal string

// IsEnabled reports whether the broker uses the provider, which is the default.
func (s *ProviderClusterSpec) IsEnabled() bool { return s.Enabled == nil || *s.Enabled }

// Region returns the region that an administrator set; "" if none did. A label that the provider advertises does not count.
func (s *ProviderClusterSpec) Region() string { return s.Attributes["region"] }

// ProviderClusterStatus is the state of a provider as observed by the broker.
type ProviderClusterStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions refer to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions has the conditions Ready, which combines Reachable, KubeletReady and NetworkReady; Clean, which is False
	// after an outage until the provider has removed the pods that were moved away; and, where they apply, Drained,
	// StartsPods and SlicesGranted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// VirtualNodes are the VirtualNodes of the provider, one for each slice of resources that it granted.
	// +optional
	// +listType=map
	// +listMapKey=name
	VirtualNodes []VirtualNodeStatus `json:"virtualNodes,omitempty"`
	// Resources is the sum of the resources of all VirtualNodes.
	// +optional
	Resources Resources `json:"resources,omitempty"`
	// Pods is the number of pods that are assigned to the provider.
	// +optional
	// +kubebuilder:default=0
	Pods int32 `json:"pods"`
	// KPIs measure the availability and the performance of the provider.
	// +optional
	KPIs KPIs `json:"kpis,omitempty"`
	// Summary has the values of columns of kubectl get.
	// +optional
	Summary Summary `json:"summary,omitempty"`
}

// Types of conditions of a ProviderCluster.
const (
	// ProviderReady: pods can be assigned to the provider.
	ProviderReady = "Ready"
	// ProviderReachable: its API server answers the broker's probe. False if it does not answer, which moves its pods.
	// Unknown if it is alive but cannot be used.
	ProviderReachable = "Reachable"
	// ProviderKubeletReady: the lease of the virtual kubelet of at least one of its VirtualNodes is live.
	ProviderKubeletReady = "KubeletReady"
	// ProviderNetworkReady: the network of the peering is connected, or Liqo's networking module is disabled.
	ProviderNetworkReady = "NetworkReady"
	// ProviderClean: it runs no pods that were moved away while it was unreachable.
	ProviderClean = "Clean"
	// ProviderDrained: no pod is assigned to it or moving away from it any more. Absent without spec.drain.
	ProviderDrained = "Drained"
	// ProviderStartsPods: False while slices accept no pods because pods that were assigned to them did not start. Absent
	// otherwise.
	ProviderStartsPods = "StartsPods"
	// ProviderSlicesGranted: False while the provider denies ResourceSlices, with its reason. Absent otherwise.
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
	// ReasonDenied replaces the reason of a provider if it is missing or not valid as the reason of a condition.
	ReasonDenied = "Denied"
)

// VirtualNodeStatus is the state of a VirtualNode, which represents one slice of a provider.
type VirtualNodeStatus struct {
	// Name is the name of the VirtualNode.
	Name string `json:"name"`
	// Ready reports whether the virtual kubelet of the VirtualNode is alive and serves the broker's node.
	Ready bool `json:"ready"`
	// Reason is why no pod can be assigned to the VirtualNode, regardless of the pod. It has the wording of the reasons in
	// events of pods. It is empty if pods can be assigned.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Resources are the resources of the slice.
	// +optional
	Resources Resources `json:"resources,omitempty"`
	// Pods is the number of pods that are assigned to the VirtualNode.
	Pods int32 `json:"pods"`
	// Closed is set while no pods are assigned to the VirtualNode, except one trial pod a minute, because pods that were
	// assigned to it did not start.
	// +optional
	Closed *Closed `json:"closed,omitempty"`
	// Reserved is set while capacity is reserved for a pod that has waited for long.
	// +optional
	Reserved *Reserved `json:"reserved,omitempty"`
}

// Closed describes why and since when no pods are assigned to a slice.
type Closed struct {
	// Since is the time since which no pods are assigned to the slice.
	Since metav1.Time `json:"since"`
	// Owners are the consumers, and the namespaces of this cluster, whose pods did not start. If there is one owner, the
	// slice is closed only for its pods; otherwise it is closed for all pods.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Owners []string `json:"owners,omitempty"`
}

// Reserved is the capacity that is reserved for a pod.
type Reserved struct {
	// Pod is the namespace and the name of the pod, as NAMESPACE/NAME.
	Pod string `json:"pod"`
	// UID is the UID of the pod.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Since is the time since which the capacity is reserved.
	Since metav1.Time `json:"since"`
	// Requests are the resources that are reserved.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// Resources are the resources that a provider granted to the broker.
type Resources struct {
	// Granted are the resources that the provider granted.
	// +optional
	Granted corev1.ResourceList `json:"granted,omitempty"`
	// Assigned are the resources that the assigned pods request.
	// +optional
	Assigned corev1.ResourceList `json:"assigned,omitempty"`
	// Free is granted minus assigned, and never negative.
	// +optional
	Free corev1.ResourceList `json:"free,omitempty"`
}

// Summary has the columns of kubectl get that kubectl cannot compute itself.
type Summary struct {
	// CPU is assigned/granted.
	// +optional
	CPU string `json:"cpu,omitempty"`
	// Memory is assigned/granted.
	// +optional
	Memory string `json:"memory,omitempty"`
	// Uptime is the uptime over 24 hours.
	// +optional
	Uptime string `json:"uptime,omitempty"`
	// Latency is the latency of the API server.
	// +optional
	Latency string `json:"latency,omitempty"`
	// Price is the present price of a CPU and hour, with its currency.
	// +optional
	Price string `json:"price,omitempty"`
}

// ProviderClusterList is a list of ProviderClusters.
//
// +kubebuilder:object:root=true
type ProviderClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProviderCluster `json:"items"`
}
