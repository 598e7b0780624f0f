package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PlacementPolicy sets which provider clusters may run a set of pods, and which of them are preferred. If several
// policies match a pod, the broker uses the one with the highest priority, and of those the first by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pp,categories=liqo
// +kubebuilder:printcolumn:name="VALID",type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name="PRIORITY",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="FAILOVER",type=string,JSONPath=`.spec.failover.mode`
// +kubebuilder:printcolumn:name="PODS",type=integer,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type PlacementPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec PlacementPolicySpec `json:"spec,omitempty"`
	// +optional
	Status PlacementPolicyStatus `json:"status,omitempty"`
}

// PlacementPolicySpec is set by an administrator.
//
// +kubebuilder:validation:XValidation:rule="!has(self.selection) || (has(self.consumers) && size(self.consumers) > 0)",message="a selection needs consumers, whose choice it is"
// +kubebuilder:validation:XValidation:rule="!has(self.selection) || !(has(self.priority) || has(self.namespaceSelector) || has(self.podSelector) || has(self.providers) || has(self.filter) || has(self.score) || has(self.weights) || has(self.uptimeWindow) || has(self.spread) || has(self.pendingTimeout) || has(self.maxUnavailable) || has(self.volumes) || has(self.maxHourlyCost))",message="a selection stands alone, with its consumers: put everything else into another policy"
// +kubebuilder:validation:XValidation:rule="!has(self.selection) || !has(self.failover) || !(has(self.failover.after) || (has(self.failover.mode) && self.failover.mode == 'Never'))",message="a selection stands alone, with its consumers: put failover into another policy"
type PlacementPolicySpec struct {
	// Priority decides between policies that match the same pod: the policy with the highest priority is used.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Consumers are the ids of the consumer clusters whose pods the policy applies to. Empty means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Consumers []string `json:"consumers,omitempty"`
	// NamespaceSelector selects pods by the labels of their namespace. If not set, it selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// PodSelector selects pods by their labels. If not set, it selects all.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// Providers are the ids of the provider clusters that may run the pods. Empty means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Providers []string `json:"providers,omitempty"`
	// Selection makes this policy the choice of its consumers among the providers. Such a policy is never the policy of
	// a pod. Its selection applies to all pods of its consumers, in addition to the policy of each pod. It excludes all
	// other fields except consumers.
	// +optional
	Selection *Selection `json:"selection,omitempty"`
	// Filter is a CEL expression over provider and pod. It must be true for every provider that may run the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Filter string `json:"filter,omitempty"`
	// Score is a CEL expression over provider and pod. It returns a number from 0 (worst) to 100 (best). The weight
	// named "expression" is the weight of this score.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Score string `json:"score,omitempty"`
	// Weights are the scores by which providers are compared, each with its weight. A score that is not listed is
	// disabled. Empty means the broker's defaults.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Weights []Weight `json:"weights,omitempty"`
	// UptimeWindow is the period whose uptime the score "uptime" uses. Default: 24h.
	// +optional
	// +kubebuilder:validation:Enum="1h";"24h";"7d";"30d"
	UptimeWindow string `json:"uptimeWindow,omitempty"`
	// Spread sets over which domains, such as regions, the pods of one application are spread. It applies if the score
	// "spread" has a weight.
	// +optional
	Spread *Spread `json:"spread,omitempty"`
	// Failover sets whether and when the broker moves pods from an unreachable provider.
	// +optional
	// +kubebuilder:default={}
	Failover Failover `json:"failover,omitempty"`
	// PendingTimeout is how long a pod may be Pending at a provider before the broker moves it to another one. 0 means
	// that it is never moved for this reason. Default: the broker's --pending-timeout.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="pendingTimeout must not be negative"
	PendingTimeout *metav1.Duration `json:"pendingTimeout,omitempty"`
	// MaxUnavailable limits the moves of pods from a provider that is drained. It is the maximum number of replicas that
	// may be not Ready after a pod has moved, including this pod: a number, or a percentage of the replicas. A percentage
	// is rounded down, but is at least one replica. Default: 25%. Replicas are the pods of a namespace with the same
	// labels, except for the labels of Liqo and the labels by which Kubernetes distinguishes replicas and revisions. A pod
	// that is not Ready itself may always move. The limit does not apply to moves from a provider that is unreachable,
	// rejects the pod, or revokes a slice.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self.matches('^([1-9][0-9]?|100)%$')",message="maxUnavailable must be a number from 1 to 1000000, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Volumes sets whether pods with PersistentVolumeClaims may leave a provider that is drained, gone or unreachable for
	// long. Keep: they stay with their volumes, and wait. Recreate: they move, and get new, empty volumes; the old ones are
	// deleted. A claim that another pod uses is kept. Use Recreate for caches only. Default: Keep.
	// +optional
	// +kubebuilder:validation:Enum=Keep;Recreate
	Volumes VolumesMode `json:"volumes,omitempty"`
	// MaxHourlyCost filters the providers at which an hour of the pod costs more, by its requests and the provider's
	// present prices; and those whose price is unknown or in another currency. Running pods stay when prices rise.
	// +optional
	MaxHourlyCost *Money `json:"maxHourlyCost,omitempty"`
}

// Money is an amount of money.
type Money struct {
	Amount Decimal `json:"amount"`
	// Currency is the code of the currency as in ISO 4217, such as EUR. Not set: prices without a currency, which are
	// those in attributes.price of providers.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency,omitempty"`
}

// VolumesMode is whether pods may leave their volumes.
type VolumesMode string

// The modes of volumes.
const (
	VolumesKeep     VolumesMode = "Keep"
	VolumesRecreate VolumesMode = "Recreate"
)

// Selection selects provider clusters.
type Selection struct {
	// Mode is AllBut if all provider clusters except those in providers are selected, or Only if only those in providers
	// are selected.
	// +optional
	// +kubebuilder:default=AllBut
	// +kubebuilder:validation:Enum=AllBut;Only
	Mode SelectionMode `json:"mode,omitempty"`
	// Providers are the ids of provider clusters that mode refers to.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Providers []string `json:"providers,omitempty"`
}

// SelectionMode is how a selection reads its list.
type SelectionMode string

// The modes of a selection.
const (
	SelectAllBut SelectionMode = "AllBut"
	SelectOnly   SelectionMode = "Only"
)

// Has reports whether a provider is selected; a nil selection selects all.
func (s *Selection) Has(provider string) bool {
	return s == nil || slices.Contains(s.Providers, provider) == (s.Mode == SelectOnly)
}

// Spread keeps the pods of one application apart.
type Spread struct {
	// TopologyKey is a label or attribute of providers, such as "region", or "provider" for the provider itself. Providers
	// with the same value are one domain.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TopologyKey string `json:"topologyKey"`
}

// Failover sets whether and when the broker moves pods from an unreachable provider.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Never' || !has(self.after)",message="after has no meaning with mode Never"
type Failover struct {
	// Mode is Move if pods are moved to another provider, or Never for pods that must not run twice.
	// +optional
	// +kubebuilder:default=Move
	// +kubebuilder:validation:Enum=Move;Never
	Mode FailoverMode `json:"mode,omitempty"`
	// After is how long the provider must have been unreachable before its pods are moved. Default: the broker's
	// --failover-after.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s')",message="failover.after must be at least 5s"
	After *metav1.Duration `json:"after,omitempty"`
}

// FailoverMode is whether pods of an unreachable provider are moved.
type FailoverMode string

// The modes of failover.
const (
	FailoverMove  FailoverMode = "Move"
	FailoverNever FailoverMode = "Never"
)

// PlacementPolicyStatus is the state of a policy as observed by the broker.
type PlacementPolicyStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions refer to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions has the condition Valid. Pods of a policy that is not valid stay unassigned, and report it.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Pods is the number of assigned pods that use this policy.
	// +optional
	// +kubebuilder:default=0
	Pods int32 `json:"pods"`
}

// PolicyValid is the condition that reports whether a policy is valid.
const PolicyValid = "Valid"

// PlacementPolicyList is a list of PlacementPolicies.
//
// +kubebuilder:object:root=true
type PlacementPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PlacementPolicy `json:"items"`
}
