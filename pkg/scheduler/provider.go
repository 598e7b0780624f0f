package scheduler

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Provider is a cluster that shares its resources, as the broker believes it to be.
type Provider struct {
	// ID is its cluster id.
	ID string
	// Labels are what the provider advertises; Attributes are what the broker's administrator adds (price, region).
	Labels, Attributes map[string]string

	// Enabled, Cordoned and Draining are the administrator's will.
	Enabled, Cordoned, Draining bool
	// Ready says that it answers. Recovering says that it came back and must first remove what it no longer runs.
	Ready, Recovering bool
	// NotReady says why it is not Ready, for people; "" says nothing.
	NotReady string

	// Namespaces are the local namespaces that are offloaded there; nil is none.
	Namespaces sets.Set[string]
	KPIs       KPIs
	Slices     []Slice
}

// KPIs are what was measured of a provider; nil is unknown, which is neither good nor bad.
type KPIs struct {
	// Uptime1h to Uptime30d are the share of that time in which it was Ready, 0 to 1.
	Uptime1h, Uptime24h, Uptime7d, Uptime30d *float64
	// Latency is the round trip to its API server; PodStartP50 and PodStartP90 are quantiles of the time from
	// assignment to Running.
	Latency, PodStartP50, PodStartP90 *time.Duration
	// FailureRate is the share of pods that failed there by no fault of their own, 0 to 1.
	FailureRate *float64
}

// Slice is one part of what a provider grants: a VirtualNode, with its own quota.
type Slice struct {
	// VirtualNode is its name, unique among all providers.
	VirtualNode string
	// Granted is what the provider granted. What it does not name is 0, but pods and ephemeral-storage, which
	// ResourceSlices often leave out, are then unlimited.
	Granted Resources
	// Ready says that its virtual kubelet runs; Cordoned that it takes no new pod.
	Ready, Cordoned bool
}

// Assignment is one pod on one slice.
type Assignment struct {
	UID types.UID
	// VirtualNode is the slice that the pod is assigned to.
	VirtualNode string
	// App is the pod's application, as in Pod.
	App string
	// Requests are what it takes; one without "pods" takes room, but is not counted as a pod.
	Requests Resources
}
