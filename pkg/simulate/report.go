package simulate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
)

// Report is the result of a scenario. Hourly values are means over an hour of the simulated time, the first one from
// Start on; times are in seconds.
type Report struct {
	Scenario        string    `json:"scenario"`
	Start           time.Time `json:"start"`
	DurationSeconds float64   `json:"durationSeconds"`
	Seed            uint64    `json:"seed"`
	Pods            Totals    `json:"pods"`
	// Waited is from the arrival of a pod to its first assignment, of the pods that were assigned.
	Waited Quantiles `json:"waitedSeconds"`
	// NeverPlaced are the reasons of the pods that were never assigned: a pod counts in each reason that its last try
	// had at any provider.
	NeverPlaced []Reason `json:"neverPlaced"`
	Moves       []Moves  `json:"moves"`
	// Moving is from the eviction of a pod to its next assignment, of the pods that were assigned again.
	Moving Quantiles `json:"movingSeconds"`
	// Costs has rows by consumer and provider, in this order in the key; "" is a currency without a name.
	Costs     []*ledger.Row    `json:"costs"`
	Providers []ProviderReport `json:"providers"`
	Consumers []ConsumerReport `json:"consumers"`

	// records are the pods in the order of their arrival.
	records []*record
}

// Totals are numbers of pods.
type Totals struct {
	Arrived int `json:"arrived"`
	// Placed pods were assigned at least once, Never placed ones never, in the simulated time.
	Placed int `json:"placed"`
	Never  int `json:"neverPlaced"`
	// Ended pods have ended. Running and Waiting are the numbers at the end.
	Ended   int `json:"ended"`
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Moved pods have left a provider at least once. Stayed counts the pods that were to leave an unreachable provider
	// and fitted no other.
	Moved  int `json:"moved"`
	Stayed int `json:"stayed"`
}

// Quantiles are nearest-rank quantiles in seconds; all are 0 if there is no value.
type Quantiles struct {
	P50     float64 `json:"p50"`
	P90     float64 `json:"p90"`
	P99     float64 `json:"p99"`
	Longest float64 `json:"longest"`
}

// Reason is why pods were never assigned.
type Reason struct {
	Reason string `json:"reason"`
	Pods   int    `json:"pods"`
	// Example is the first of them by its arrival, as namespace/name.
	Example string `json:"example"`
}

// Moves counts evictions with one cause, which has the value of the label of the broker's metric.
type Moves struct {
	Cause string `json:"cause"`
	Moves int    `json:"moves"`
}

// ProviderReport is the use of one provider.
type ProviderReport struct {
	Provider string `json:"provider"`
	// Assignments counts how often a pod was assigned there.
	Assignments int `json:"assignments"`
	// Resources has hourly values, in cores, GiB, or units.
	Resources map[corev1.ResourceName]*Usage `json:"resources"`
	// Used is, hourly, the largest share of a granted resource that was assigned.
	Used []float64 `json:"used"`
}

// Usage has hourly values.
type Usage struct {
	Granted  []float64 `json:"granted"`
	Assigned []float64 `json:"assigned"`
}

// ConsumerReport is the result for one consumer.
type ConsumerReport struct {
	Consumer string    `json:"consumer"`
	Arrived  int       `json:"arrived"`
	Placed   int       `json:"placed"`
	Waited   Quantiles `json:"waitedSeconds"`
	// Share is, hourly, the dominant share: the largest share of all providers' grants of a resource that its pods had.
	Share []float64 `json:"share"`
}

// record is the history of a pod.
type record struct {
	consumer, namespace, name, workload string
	arrived, placed, ended              time.Time
	// places are the ids of its providers, in order; the strings are the providers' own.
	places []string
	moves  int
	cost   map[string]float64
	// waits are the reasons of its last try; nil once it was assigned.
	waits []string
}

func (r *record) id() string { return r.namespace + "/" + r.name }
