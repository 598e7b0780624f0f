package api

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Provider is a provider cluster.
type Provider struct {
	ID       string `json:"id" doc:"The id of the cluster"`
	Enabled  bool   `json:"enabled" doc:"Whether the operator lets it take part"`
	Cordoned bool   `json:"cordoned" doc:"Whether new pods are kept away for a while"`
	Draining bool   `json:"draining" doc:"Whether its pods are moved elsewhere"`
	Ready    bool   `json:"ready" doc:"Whether it can be given pods"`
	// Selected is absent when the question is not asked on behalf of a consumer.
	Selected *bool `json:"selected,omitempty" doc:"Whether the consumer that asks has selected it"`

	Region     string            `json:"region,omitempty" doc:"Where it is"`
	Price      *float64          `json:"price,omitempty" doc:"Per CPU and hour"`
	Attributes map[string]string `json:"attributes,omitempty" doc:"What the operator says of it, and what it advertises itself"`

	Resources    Resources     `json:"resources" doc:"What it granted, over all its virtual nodes"`
	VirtualNodes []VirtualNode `json:"virtualNodes,omitempty" doc:"The slices that it granted"`
	Pods         int32         `json:"pods" doc:"How many pods are assigned to it"`
	KPIs         KPIs          `json:"kpis" doc:"How well it does"`
	Conditions   []Condition   `json:"conditions,omitempty" doc:"As of the ProviderCluster"`
	Created      time.Time     `json:"created"`
}

// Resources are amounts of what a provider granted.
type Resources struct {
	Granted  corev1.ResourceList `json:"granted,omitempty"`
	Assigned corev1.ResourceList `json:"assigned,omitempty"`
	Free     corev1.ResourceList `json:"free,omitempty"`
}

// VirtualNode is one slice of a provider.
type VirtualNode struct {
	Name      string    `json:"name"`
	Ready     bool      `json:"ready"`
	Pods      int32     `json:"pods"`
	Resources Resources `json:"resources"`
}

// KPIs measure a provider. Shares are from 0 to 1.
type KPIs struct {
	Uptime1h            *float64 `json:"uptime1h,omitempty"`
	Uptime24h           *float64 `json:"uptime24h,omitempty"`
	Uptime7d            *float64 `json:"uptime7d,omitempty"`
	Uptime30d           *float64 `json:"uptime30d,omitempty"`
	LatencyMilliseconds *int64   `json:"latencyMilliseconds,omitempty" doc:"Median of its API server"`
	PodStartP50Millis   *int64   `json:"podStartP50Milliseconds,omitempty"`
	PodStartP90Millis   *int64   `json:"podStartP90Milliseconds,omitempty"`
	FailureRate         *float64 `json:"failureRate,omitempty"`
	MovedAway           int64    `json:"movedAway" doc:"How many pods were moved away from it"`
}

// Condition is one of a Kubernetes object.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status" enum:"True,False,Unknown"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// ProviderList is a page of providers, by id.
type ProviderList struct {
	Items []Provider `json:"items"`
	Page
}

// Page says where a list stands.
type Page struct {
	Total    int    `json:"total" doc:"How many there are in all, of those asked for"`
	Continue string `json:"continue,omitempty" doc:"Give it as continue to get the next page; absent on the last one"`
}

// History is how a provider did.
type History struct {
	ID string `json:"id"`
	// Since is when the catalog began to watch: the samples reach no further back. The gaps come from the broker and do.
	Since   time.Time `json:"since"`
	Samples []Sample  `json:"samples" doc:"Oldest first"`
	// WatchedSince is when the broker began to watch the provider.
	WatchedSince *time.Time `json:"watchedSince,omitempty"`
	Gaps         []Gap      `json:"gaps" doc:"When it was not seen to be up in the last 30 days, oldest first"`
}

// Sample is a provider at one moment.
type Sample struct {
	At                  time.Time `json:"at"`
	Ready               bool      `json:"ready"`
	LatencyMilliseconds *int64    `json:"latencyMilliseconds,omitempty"`
	Pods                int32     `json:"pods"`
	CPUAssigned         float64   `json:"cpuAssigned" doc:"In CPUs"`
	CPUGranted          float64   `json:"cpuGranted" doc:"In CPUs"`
}

// Gap is a time in which a provider was not seen to be up.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Kind string    `json:"kind" enum:"Down,Unobserved" doc:"Unobserved: nobody looked; it does not count"`
}
