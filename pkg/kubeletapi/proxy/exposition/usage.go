package exposition

import (
	"sync"
	"time"
)

// maxSkew is the maximum distance between the timestamp of a sample and now.
const maxSkew = time.Minute

// The nodeMetrics.
const (
	nodeCPU    = "node_cpu_usage_seconds_total"
	nodeMemory = "node_memory_working_set_bytes"
)

// Grant is the capacity that a provider grants: CPUs, and memory (bytes).
type Grant struct{ CPU, Memory float64 }

// Usage bounds the usage that each provider adds to the metrics of the node. It counts from its creation: the sums may
// then start again.
type Usage struct {
	mu sync.Mutex
	of map[string]used // By provider. Guarded by mu.
}

// used is the counter of CPU seconds of one provider.
type used struct {
	at time.Time
	// measured is the provider's counter, counted the part that was added here (seconds).
	measured, counted float64
}

// NewUsage returns a Usage without providers.
func NewUsage() *Usage { return &Usage{of: map[string]used{}} }

// Bound limits the usage of a provider's nodes in its metrics f to its grant. A counter that has decreased, because a
// node was removed or restarted, counts from its new value.
func (u *Usage) Bound(provider string, f *Metrics, grant Grant, now time.Time) {
	if memory := f.byName[nodeMemory]; memory != nil {
		memory.sum = min(memory.sum, grant.Memory)
	}
	cpu := f.byName[nodeCPU]
	if cpu == nil || !cpu.summed {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	last, known := u.of[provider]
	if !known || now.After(last.at) {
		next := used{at: now, measured: cpu.sum, counted: last.counted}
		if known {
			next.counted += max(0, min(cpu.sum-last.measured, grant.CPU*now.Sub(last.at).Seconds()))
		}
		u.of[provider], last = next, next
	}
	cpu.sum = last.counted
}

// Missing keeps the counted usage of a provider that does not answer in the sum, if other providers have usage: without
// it the sum would decrease, which looks like a counter reset.
func (u *Usage) Missing(provider string, all []*Metrics) *Metrics {
	f := newMetrics()
	for _, other := range all {
		if other != nil && other.byName[nodeCPU] != nil && other.byName[nodeCPU].summed {
			u.mu.Lock()
			defer u.mu.Unlock()
			if last, known := u.of[provider]; known {
				of := f.declare(nodeCPU, other.byName[nodeCPU].kind)
				of.sum, of.summed = last.counted, true
			}
			return f
		}
	}
	return f
}
