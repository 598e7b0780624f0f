package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
type ProviderCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec ProviderClusterSpec `json:"spec,omitempty"`
	// +optional
	Status ProviderClusterStatus `json:"status,omitempty"`
}

// ProviderClusterSpec is what people decide about a provider.
type ProviderClusterSpec struct {
	// Enabled says whether the provider takes part. A disabled one gets no new pod; the pods there stay.
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
	// ProviderReachable: its API server answers the broker's probe.
	ProviderReachable = "Reachable"
	// ProviderKubeletReady: the lease of the virtual kubelet of at least one of its VirtualNodes is live.
	ProviderKubeletReady = "KubeletReady"
	// ProviderNetworkReady: the peering's network is up, or its module is off.
	ProviderNetworkReady = "NetworkReady"
	// ProviderClean: it runs nothing that was moved away while it could not be reached.
	ProviderClean = "Clean"
)

// VirtualNodeStatus is one slice of a provider.
type VirtualNodeStatus struct {
	// Name of the VirtualNode.
	Name string `json:"name"`
	// Ready says whether its virtual kubelet is alive.
	Ready bool `json:"ready"`
	// +optional
	Resources Resources `json:"resources,omitempty"`
	// Pods is how many pods are assigned to it.
	Pods int32 `json:"pods"`
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

// KPIs measure a provider. What is absent is not known.
type KPIs struct {
	// Uptime is the share of time in which the provider was reachable, of the time in which the broker looked.
	// +optional
	Uptime Uptime `json:"uptime,omitempty"`
	// LatencyMilliseconds is the median time that its API server took to answer the last probes.
	// +optional
	LatencyMilliseconds *int64 `json:"latencyMilliseconds,omitempty"`
	// PodStart is the time from the assignment of a pod to its being Ready, of the last pods.
	// +optional
	PodStart *PodStart `json:"podStart,omitempty"`
	// Started and Failed count the assignments of the last hours that led to a Ready pod, and those that did not.
	// Both are halved every 24 hours.
	// +optional
	Started int64 `json:"started,omitempty"`
	// +optional
	Failed int64 `json:"failed,omitempty"`
	// Halved is when the two counts were last halved.
	// +optional
	Halved *metav1.Time `json:"halved,omitempty"`
	// MovedAway counts the pods that the broker moved away.
	// +optional
	MovedAway int64 `json:"movedAway,omitempty"`
}

// Uptime is what is known of the time that the provider could be reached. Shares are decimals from 0 to 1.
type Uptime struct {
	// +optional
	LastHour string `json:"lastHour,omitempty"`
	// +optional
	LastDay string `json:"lastDay,omitempty"`
	// +optional
	LastWeek string `json:"lastWeek,omitempty"`
	// +optional
	LastMonth string `json:"lastMonth,omitempty"`
	// Since is when the broker began to watch the provider.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Until is when it last looked.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// Gaps are the times in the last 30 days in which the provider was down or nobody looked, oldest first.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Gaps []Gap `json:"gaps,omitempty"`
}

// Gap is a time in which a provider was not seen to be up.
type Gap struct {
	From metav1.Time `json:"from"`
	To   metav1.Time `json:"to"`
	// Kind is Down, or Unobserved when the broker was not looking; the latter does not count.
	// +kubebuilder:validation:Enum=Down;Unobserved
	Kind GapKind `json:"kind"`
}

// GapKind says why a provider was not seen to be up.
type GapKind string

// The kinds of gaps.
const (
	GapDown       GapKind = "Down"
	GapUnobserved GapKind = "Unobserved"
)

// PodStart are quantiles of the time that pods took to start.
type PodStart struct {
	P50Milliseconds int64 `json:"p50Milliseconds"`
	P90Milliseconds int64 `json:"p90Milliseconds"`
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
