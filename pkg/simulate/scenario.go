package simulate

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Scenario is a federation and its events over a time. Times without a date are since Start.
type Scenario struct {
	// Name is the scenario's name in reports; Load sets it to the name of the file if it is empty.
	Name string `json:"name,omitempty"`
	// Start is the first moment, which decides about prices with a "from" and about hours of the day (UTC).
	Start metav1.Time `json:"start"`
	// Duration is the simulated time, at least one minute.
	Duration metav1.Duration `json:"duration"`
	// Seed decides about all random numbers.
	Seed uint64 `json:"seed,omitempty"`
	// Broker has settings that differ from the defaults of the broker's flags.
	Broker Broker `json:"broker,omitempty"`
	// Providers are made from a few fields, ProviderClusters are manifests. The virtual nodes of a manifest, and the
	// resources that they grant, are in its status, the labels that the provider advertises in its metadata.
	Providers        []Provider                 `json:"providers,omitempty"`
	ProviderClusters []v1alpha1.ProviderCluster `json:"providerClusters,omitempty"`
	// Policies are manifests; apiVersion and kind may be left out.
	Policies  []v1alpha1.PlacementPolicy `json:"policies,omitempty"`
	Consumers []Consumer                 `json:"consumers"`
	Events    []Event                    `json:"events,omitempty"`
}

// Broker has the values of flags of the broker; a value that is not set is the flag's default.
type Broker struct {
	FailoverAfter   *metav1.Duration `json:"failoverAfter,omitempty"`
	ReserveAfter    *metav1.Duration `json:"reserveAfter,omitempty"`
	ProbeInterval   *metav1.Duration `json:"probeInterval,omitempty"`
	SuspicionWindow *metav1.Duration `json:"suspicionWindow,omitempty"`
	MovesAtOnce     *int             `json:"movesAtOnce,omitempty"`
}

// Provider is a provider cluster with one virtual node.
type Provider struct {
	ID string `json:"id"`
	// Count makes so many equal providers, ID-1, ID-2 and so on; 0 is one provider with the id itself.
	Count int `json:"count,omitempty"`
	// Attributes are set by an administrator, such as price and region; Labels are advertised by the provider.
	Attributes map[string]string    `json:"attributes,omitempty"`
	Labels     map[string]string    `json:"labels,omitempty"`
	Prices     []v1alpha1.PriceList `json:"prices,omitempty"`
	// Granted are the resources that the provider grants to the broker.
	Granted corev1.ResourceList `json:"granted"`
	KPIs    KPIs                `json:"kpis,omitempty"`
	// Start is the time from the assignment of a pod until it runs (3 s), Stop the time until a pod that moves away is
	// gone there (2 s).
	Start Distribution     `json:"start,omitempty"`
	Stop  *metav1.Duration `json:"stop,omitempty"`
}

// KPIs are the measurements of a provider when the scenario begins. The broker continues them.
type KPIs struct {
	// Uptime is the share of the last 30 days in which it could be reached, above 0 and at most 1; 0 is not known.
	Uptime float64 `json:"uptime,omitempty"`
	// Latency is the round trip of a probe (20 ms).
	Latency *metav1.Duration `json:"latency,omitempty"`
}

// Consumer is a cluster whose pods arrive at the broker.
type Consumer struct {
	ID string `json:"id"`
	// Labels are the labels of its namespaces, for the namespaceSelector of policies.
	Labels map[string]string `json:"labels,omitempty"`
	// Grant bounds the sum of its pods' requests, as its ResourceSlices do; not set is no bound.
	Grant corev1.ResourceList `json:"grant,omitempty"`
	// Weight and Guaranteed are its ConsumerCluster's: its waiting pods take turns with the pods of others by them.
	Weight     *int32              `json:"weight,omitempty"`
	Guaranteed corev1.ResourceList `json:"guaranteed,omitempty"`

	Workloads []Workload `json:"workloads"`
}

// Workload is a source of equal pods, which are named NAME-1, NAME-2 and so on.
type Workload struct {
	Name string `json:"name"`
	// Namespace is by default the consumer's id. NamespaceLabels are added to the consumer's labels of namespaces.
	Namespace       string            `json:"namespace,omitempty"`
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	Arrivals        Arrivals          `json:"arrivals"`
	Lifetime        Distribution      `json:"lifetime"`
	// AssignedTo is where the initial pods are at the start; not set: they are decided about like all others.
	AssignedTo *AssignedTo `json:"assignedTo,omitempty"`
	// RestartsOnMove means that a pod which moves begins its lifetime again, as a batch job does that loses its work.
	RestartsOnMove bool `json:"restartsOnMove,omitempty"`

	Labels      map[string]string   `json:"labels,omitempty"`
	Annotations map[string]string   `json:"annotations,omitempty"`
	Requests    corev1.ResourceList `json:"requests"`
	// NodeSelector, Affinity and TopologySpreadConstraints are constraints over providers.
	NodeSelector              map[string]string                 `json:"nodeSelector,omitempty"`
	Affinity                  *corev1.Affinity                  `json:"affinity,omitempty"`
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
}

// AssignedTo is a virtual node of a provider.
type AssignedTo struct {
	Provider    string `json:"provider"`
	VirtualNode string `json:"virtualNode"`
}

// Arrivals are the times at which pods of a workload arrive: a Poisson process.
type Arrivals struct {
	// PerHour is the mean number of arrivals in an hour.
	PerHour float64 `json:"perHour,omitempty"`
	// Profile multiplies PerHour in each of the 24 hours of the day, in UTC; empty is 1 in all.
	Profile []float64 `json:"profile,omitempty"`
	// Initial pods arrive at the start.
	Initial int `json:"initial,omitempty"`
}

// Distribution is a distribution of times; they are rounded to milliseconds.
type Distribution struct {
	// Distribution is exponential, lognormal or fixed, which is the default.
	Distribution string          `json:"distribution,omitempty"`
	Mean         metav1.Duration `json:"mean,omitempty"`
	// Sigma is the standard deviation of the logarithm, of lognormal only (1).
	Sigma float64 `json:"sigma,omitempty"`
}

// Event changes a provider. All fields that are set apply.
type Event struct {
	At       metav1.Duration `json:"at"`
	Provider string          `json:"provider"`
	Action   Action          `json:"action,omitempty"`
	// Attributes are added to the provider's, an empty value removes one. Prices replace its price lists, Granted the
	// resources that it grants, if it has one virtual node.
	Attributes map[string]string    `json:"attributes,omitempty"`
	Prices     []v1alpha1.PriceList `json:"prices,omitempty"`
	Granted    corev1.ResourceList  `json:"granted,omitempty"`
}

// Action is a change of a provider's state.
type Action string

// The actions. A provider that fails answers no probe, and reports neither starts nor ends of pods until it recovers.
const (
	Fail     Action = "Fail"
	Recover  Action = "Recover"
	Drain    Action = "Drain"
	Undrain  Action = "Undrain"
	Cordon   Action = "Cordon"
	Uncordon Action = "Uncordon"
	Disable  Action = "Disable"
	Enable   Action = "Enable"
)

// actions returns all of them.
func actions() []Action {
	return []Action{Fail, Recover, Drain, Undrain, Cordon, Uncordon, Disable, Enable}
}

// Defaults of a provider.
const (
	defaultStart   = 3 * time.Second
	defaultStop    = 2 * time.Second
	defaultLatency = 20 * time.Millisecond
)

// ids returns the ids of the providers that are made.
func (p *Provider) ids() []string {
	if p.Count == 0 {
		return []string{p.ID}
	}
	ids := make([]string, p.Count)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", p.ID, i+1)
	}
	return ids
}

func (w *Workload) namespaceOf(c *Consumer) string { return cmp.Or(w.Namespace, c.ID) }
