package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KPIs measure a provider. A KPI that is absent is unknown.
type KPIs struct {
	// Uptime is the share of the time observed by the broker in which the provider was reachable.
	// +optional
	Uptime Uptime `json:"uptime,omitempty"`
	// LatencyMilliseconds is the median response time of the provider's API server to the last probes of the broker.
	// +optional
	LatencyMilliseconds *int64 `json:"latencyMilliseconds,omitempty"`
	// PodStart is the time from the assignment of a pod to the start of its first container, for the last pods. It is the
	// median of the values of all consumers, so that each consumer counts once.
	// +optional
	PodStart *PodStart `json:"podStart,omitempty"`
	// Started is the number of recent assignments of pods after which a container of the pod was started. The ratio of
	// started to failed is the median of all consumers, so that each consumer counts once. Both numbers are halved every
	// 24 hours.
	// +optional
	Started int64 `json:"started,omitempty"`
	// Failed is the number of recent assignments of pods after which no container of the pod was started; see started.
	// +optional
	Failed int64 `json:"failed,omitempty"`
	// Halved is the time at which started and failed were last halved.
	// +optional
	Halved *metav1.Time `json:"halved,omitempty"`
	// MovedAway is the number of pods that the broker moved from this provider to another one.
	// +optional
	MovedAway int64 `json:"movedAway,omitempty"`
}

// Uptime is the share of the time in which the provider was reachable, as decimals from 0 to 1.
type Uptime struct {
	// LastHour is the share of the last hour.
	// +optional
	LastHour string `json:"lastHour,omitempty"`
	// LastDay is the share of the last 24 hours.
	// +optional
	LastDay string `json:"lastDay,omitempty"`
	// LastWeek is the share of the last 7 days.
	// +optional
	LastWeek string `json:"lastWeek,omitempty"`
	// LastMonth is the share of the last 30 days.
	// +optional
	LastMonth string `json:"lastMonth,omitempty"`
	// Since is the time at which the broker began to observe the provider.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Until is the time of the last probe.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// Gaps are the periods of the last 30 days in which the provider was down or not observed, oldest first.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Gaps []Gap `json:"gaps,omitempty"`
}

// Gap is a period in which a provider was down or not observed.
type Gap struct {
	// From is the beginning of the period.
	From metav1.Time `json:"from"`
	// To is the end of the period.
	To metav1.Time `json:"to"`
	// Kind is Down, or Unobserved if the broker did not probe the provider. Unobserved periods are not part of the uptime.
	// +kubebuilder:validation:Enum=Down;Unobserved
	Kind GapKind `json:"kind"`
}

// GapKind is the kind of a gap.
type GapKind string

// The kinds of gaps.
const (
	GapDown       GapKind = "Down"
	GapUnobserved GapKind = "Unobserved"
)

// PodStart is the distribution of the time that pods took to start.
type PodStart struct {
	// P50Milliseconds is the median.
	P50Milliseconds int64 `json:"p50Milliseconds"`
	// P90Milliseconds is the 90th percentile.
	P90Milliseconds int64 `json:"p90Milliseconds"`
}

// Weight is the weight of one score of a provider.
type Weight struct {
	// Name is the name of the score.
	// +kubebuilder:validation:Enum=close;expression;failures;free;latency;packed;preferred;price;spread;start;uptime
	Name string `json:"name"`
	// Weight is the weight of the score in the weighted mean of all scores. 0 disables the score.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Weight int32 `json:"weight"`
}
