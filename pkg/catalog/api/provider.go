// Package api has the JSON types of the catalog's HTTP API /api/v1, and their translation from Kubernetes objects.
// Amounts of resources are Kubernetes quantities, times are RFC 3339 in UTC. A field that is absent is not known.
package api

import (
	"time"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Provider is a provider cluster.
type Provider struct {
	ID       string `json:"id" doc:"The id of the cluster"`
	Enabled  bool   `json:"enabled" doc:"Whether it gets new pods, by the decision of an operator"`
	Cordoned bool   `json:"cordoned" doc:"Whether it is cordoned: it gets no new pods"`
	Draining bool   `json:"draining" doc:"Whether it is drained: its pods move to other providers"`
	Ready    bool   `json:"ready" doc:"Whether pods can be assigned to it"`
	Selected *bool  `json:"selected,omitempty" doc:"Whether the consumer that the caller acts for selected it; absent without a consumer"`

	Region     string            `json:"region,omitempty" doc:"The region, of the operator's attributes"`
	Price      *float64          `json:"price,omitempty" doc:"Per CPU and hour"`
	Currency   string            `json:"currency,omitempty" doc:"The currency of price; absent if it has no name"`
	Prices     []Prices          `json:"prices,omitempty" doc:"The prices of all resources, also future ones, by time"`
	Attributes map[string]string `json:"attributes,omitempty" doc:"Labels that the provider advertises, and attributes of the operator, which win"`

	Resources    v1alpha1.Resources `json:"resources" doc:"The sum of all its virtual nodes"`
	VirtualNodes []VirtualNode      `json:"virtualNodes,omitempty" doc:"The slices that it granted"`
	Pods         int32              `json:"pods" doc:"The number of pods assigned to it"`
	KPIs         KPIs               `json:"kpis" doc:"What was measured"`
	Conditions   []Condition        `json:"conditions,omitempty" doc:"The conditions of the ProviderCluster"`
	Created      time.Time          `json:"created"`
}

// Public returns the provider as anonymous callers see it: of its attributes only region and price, and without the
// slices and the conditions, whose messages name other clusters and their addresses.
func (p Provider) Public() Provider {
	p.Attributes, p.Prices, p.VirtualNodes, p.Conditions = nil, nil, nil, nil
	return p
}

// Prices apply from a time until the next ones.
type Prices struct {
	From     *time.Time         `json:"from,omitempty" doc:"Absent for prices that apply before all others"`
	Currency string             `json:"currency,omitempty" doc:"As in ISO 4217; absent if it has no name"`
	PerHour  map[string]float64 `json:"perHour" doc:"By resource: of cpu per core, of memory, ephemeral-storage and hugepages per GiB, of others per unit"`
}

// VirtualNode is one slice of a provider.
type VirtualNode struct {
	Name      string             `json:"name"`
	Ready     bool               `json:"ready" doc:"Whether its virtual kubelet is alive"`
	Reason    string             `json:"reason,omitempty" doc:"Why no pod can be assigned to it; absent if pods can be"`
	Pods      int32              `json:"pods"`
	Resources v1alpha1.Resources `json:"resources"`
}

// KPIs measure a provider. Shares are from 0 to 1.
type KPIs struct {
	Uptime1h            *float64 `json:"uptime1h,omitempty"`
	Uptime24h           *float64 `json:"uptime24h,omitempty"`
	Uptime7d            *float64 `json:"uptime7d,omitempty"`
	Uptime30d           *float64 `json:"uptime30d,omitempty"`
	LatencyMilliseconds *int64   `json:"latencyMilliseconds,omitempty" doc:"The median latency of its API server"`
	PodStartP50Millis   *int64   `json:"podStartP50Milliseconds,omitempty"`
	PodStartP90Millis   *int64   `json:"podStartP90Milliseconds,omitempty"`
	FailureRate         *float64 `json:"failureRate,omitempty"`
	MovedAway           int64    `json:"movedAway" doc:"The number of pods that were moved away from it"`
}

// Condition is a condition of a Kubernetes object.
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

// Page is the position of a page in its list.
type Page struct {
	Total    int    `json:"total" doc:"The number of all matching items"`
	Continue string `json:"continue,omitempty" doc:"The parameter continue of the next page; absent on the last page"`
}

// History has samples of a provider, and the gaps in its uptime.
type History struct {
	ID           string     `json:"id"`
	Since        time.Time  `json:"since" doc:"When the catalog began to sample"`
	Samples      []Sample   `json:"samples" doc:"Oldest first"`
	WatchedSince *time.Time `json:"watchedSince,omitempty" doc:"When the broker began to probe the provider"`
	Gaps         []Gap      `json:"gaps" doc:"When it was not up, or not probed, in the last 30 days, oldest first"`
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

// Gap is a time in which a provider was not up, or not probed.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Kind string    `json:"kind" enum:"Down,Unobserved" doc:"Unobserved: it was not probed; the time does not count as downtime"`
}
