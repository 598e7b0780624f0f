package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PlacementPolicy sets which provider clusters are good for which pods. Of several that match a pod, the one with the
// highest priority counts, then the first by name.
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
// +kubebuilder:validation:XValidation:rule="!has(self.selection) || !(has(self.priority) || has(self.namespaceSelector) || has(self.podSelector) || has(self.providers) || has(self.filter) || has(self.score) || has(self.weights) || has(self.uptimeWindow) || has(self.spread) || has(self.pendingTimeout) || has(self.maxUnavailable))",message="a selection stands alone, with its consumers: put everything else into another policy"
// +kubebuilder:validation:XValidation:rule="!has(self.selection) || !has(self.failover) || !(has(self.failover.after) || (has(self.failover.mode) && self.failover.mode == 'Never'))",message="a selection stands alone, with its consumers: put failover into another policy"
type PlacementPolicySpec struct {
	// Priority decides between policies that match the same pod: the highest counts.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Consumers are the ids of the clusters whose pods the policy is for; none means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Consumers []string `json:"consumers,omitempty"`
	// NamespaceSelector chooses by the labels of the pod's namespace; none means all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// PodSelector chooses by the labels of the pod; none means all.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// Providers are the ids of the provider clusters that may be used; none means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Providers []string `json:"providers,omitempty"`
	// Selection makes this policy the choice that its consumers made among the providers. It is no pod's policy: it is
	// asked of all pods of its consumers, beside the policy that counts for each.
	// +optional
	Selection *Selection `json:"selection,omitempty"`
	// Filter is a CEL expression over provider and pod, true for every provider that may be used.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Filter string `json:"filter,omitempty"`
	// Score is a CEL expression over provider and pod, from 0 (bad) to 100 (good); its weight is that of "expression".
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Score string `json:"score,omitempty"`
	// Weights are the scores that count, and how much; none means the broker's defaults.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Weights []Weight `json:"weights,omitempty"`
	// UptimeWindow is the time over which the score "uptime" looks back; 24h if absent.
	// +optional
	// +kubebuilder:validation:Enum="1h";"24h";"7d";"30d"
	UptimeWindow string `json:"uptimeWindow,omitempty"`
	// Spread is by what pods of one application are kept apart, when the score "spread" has a weight.
	// +optional
	Spread *Spread `json:"spread,omitempty"`
	// Failover is what happens to pods whose provider cannot be reached.
	// +optional
	// +kubebuilder:default={}
	Failover Failover `json:"failover,omitempty"`
	// PendingTimeout is how long a pod may be Pending at a provider before it is tried elsewhere; the broker's
	// --pending-timeout if absent, never if zero.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="pendingTimeout must not be negative"
	PendingTimeout *metav1.Duration `json:"pendingTimeout,omitempty"`
	// MaxUnavailable is how many replicas of a pod, the pod included, may be not Ready after the pod has left a provider that
	// is drained: a number, or a percentage of the replicas, which is rounded down, but to one at least. 25% if absent.
	// Replicas are the pods of one namespace with the same labels; labels of Liqo, and those by which Kubernetes tells
	// replicas and revisions apart, do not count. A pod that is not Ready itself may always leave. Providers that cannot be
	// reached, that refuse a pod, or that revoke a slice are left without this limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self.matches('^([1-9][0-9]?|100)%$')",message="maxUnavailable must be a number from 1 to 1000000, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// Selection is a choice among the provider clusters.
type Selection struct {
	// Mode is AllBut if Providers are left out, or Only if no others are selected.
	// +optional
	// +kubebuilder:default=AllBut
	// +kubebuilder:validation:Enum=AllBut;Only
	Mode SelectionMode `json:"mode,omitempty"`
	// Providers are ids of provider clusters.
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
	// TopologyKey is a label or attribute of providers, such as "region", or "provider" for the provider itself.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TopologyKey string `json:"topologyKey"`
}

// Failover is what happens to pods whose provider cannot be reached.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Never' || !has(self.after)",message="after has no meaning with mode Never"
type Failover struct {
	// Mode is Move, or Never for pods that must not run twice.
	// +optional
	// +kubebuilder:default=Move
	// +kubebuilder:validation:Enum=Move;Never
	Mode FailoverMode `json:"mode,omitempty"`
	// After is how long the provider must have been unreachable; the broker's --failover-after if absent.
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

// PlacementPolicyStatus is what the broker reports of a policy.
type PlacementPolicyStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Valid. Pods of a policy that is not valid stay unassigned and say so.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Pods is how many assigned pods the policy is for.
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
