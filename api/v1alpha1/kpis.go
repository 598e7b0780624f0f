package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KPIs measure a provider. What is absent is unknown.
type KPIs struct {
	// Uptime is the share of the time observed by the broker in which the provider was reachable.
	// +optional
	Uptime Uptime `json:"uptime,omitempty"`
	// LatencyMilliseconds is the median time that its API server took to answer the last probes.
	// +optional
	LatencyMilliseconds *int64 `json:"latencyMilliseconds,omitempty"`
	// PodStart is the time from the assignment of a pod to the start of its first container, of the last pods. Each consumer
	// counts once: it is the median of theirs.
	// +optional
	PodStart *PodStart `json:"podStart,omitempty"`
	// Started and Failed count the assignments of the last hours of which a container was started, and those of which none
	// was, in the proportion that is the median of the consumers'. Both are halved every 24 hours.
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

// Uptime is how much of the time the provider was reachable. Shares are decimals from 0 to 1.
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
	// Until is when it last probed.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// Gaps are the times in the last 30 days in which the provider was down or not observed, oldest first.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Gaps []Gap `json:"gaps,omitempty"`
}

// Gap is a time in which a provider was down or not observed.
type Gap struct {
	From metav1.Time `json:"from"`
	To   metav1.Time `json:"to"`
	// Kind is Down, or Unobserved when the broker did not probe; the latter does not count.
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

// PodStart are quantiles of the time that pods took to start.
type PodStart struct {
	P50Milliseconds int64 `json:"p50Milliseconds"`
	P90Milliseconds int64 `json:"p90Milliseconds"`
}

// Weight is how much one score of providers counts.
type Weight struct {
	// Name of the score.
	// +kubebuilder:validation:Enum=close;expression;failures;free;latency;packed;price;spread;start;uptime
	Name string `json:"name"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Weight int32 `json:"weight"`
}
