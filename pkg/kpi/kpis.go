// Package kpi measures provider clusters: uptime over windows, latency, the time pods take to start, failures. It is
// pure: the caller passes the times, and the package reads and writes only the API's status, so that its measurements
// survive a restart of the broker.
package kpi

import (
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Values are the KPIs of a provider by name. A KPI that is unknown is absent.
type Values map[string]float64

// KPI is one measurement of a provider, as expressions and scores read it.
type KPI struct {
	// Name is the name of the field in provider.kpis.
	Name string
	// Unit and Example, a filter, are for docs/policies.md.
	Unit, Example string
	// read returns the value from a status; false if it is unknown.
	read func(*v1alpha1.KPIs) (float64, bool)
}

// The names of the KPIs.
const (
	Uptime1h            = "uptime1h"
	Uptime24h           = "uptime24h"
	Uptime7d            = "uptime7d"
	Uptime30d           = "uptime30d"
	LatencyMilliseconds = "latencyMilliseconds"
	PodStartP50Seconds  = "podStartP50Seconds"
	PodStartP90Seconds  = "podStartP90Seconds"
	FailureRate         = "failureRate"
)

var kpis = [...]KPI{
	{
		Uptime1h, "0 to 1", "!has(provider.kpis.uptime1h) || provider.kpis.uptime1h > 0.9",
		func(k *v1alpha1.KPIs) (float64, bool) { return share(k.Uptime.LastHour) },
	},
	{
		Uptime24h, "0 to 1", "has(provider.kpis.uptime24h) && provider.kpis.uptime24h > 0.99",
		func(k *v1alpha1.KPIs) (float64, bool) { return share(k.Uptime.LastDay) },
	},
	{
		Uptime7d, "0 to 1", "has(provider.kpis.uptime7d) && provider.kpis.uptime7d > 0.99",
		func(k *v1alpha1.KPIs) (float64, bool) { return share(k.Uptime.LastWeek) },
	},
	{
		Uptime30d, "0 to 1", "has(provider.kpis.uptime30d) && provider.kpis.uptime30d > 0.99",
		func(k *v1alpha1.KPIs) (float64, bool) { return share(k.Uptime.LastMonth) },
	},
	{
		LatencyMilliseconds, "milliseconds",
		"has(provider.kpis.latencyMilliseconds) && provider.kpis.latencyMilliseconds < 50",
		func(k *v1alpha1.KPIs) (float64, bool) {
			took := ptr.Deref(k.LatencyMilliseconds, -1)
			return float64(took), took >= 0
		},
	},
	{
		PodStartP50Seconds, "seconds", "!has(provider.kpis.podStartP50Seconds) || provider.kpis.podStartP50Seconds < 10",
		func(k *v1alpha1.KPIs) (float64, bool) {
			if k.PodStart == nil {
				return 0, false
			}
			return float64(k.PodStart.P50Milliseconds) / 1000, k.PodStart.P50Milliseconds >= 0
		},
	},
	{
		PodStartP90Seconds, "seconds", "!has(provider.kpis.podStartP90Seconds) || provider.kpis.podStartP90Seconds < 60",
		func(k *v1alpha1.KPIs) (float64, bool) {
			if k.PodStart == nil {
				return 0, false
			}
			return float64(k.PodStart.P90Milliseconds) / 1000, k.PodStart.P90Milliseconds >= 0
		},
	},
	{
		FailureRate, "0 to 1", "!has(provider.kpis.failureRate) || provider.kpis.failureRate < 0.1",
		func(k *v1alpha1.KPIs) (float64, bool) { return failureRate(k.Started, k.Failed) },
	},
}

// All returns every KPI.
func All() []KPI { return slices.Clone(kpis[:]) }

// ValuesOf returns the KPIs that a status of a ProviderCluster has. A value that is out of range is unknown.
func ValuesOf(status *v1alpha1.KPIs) Values {
	values := Values{}
	for i := range kpis {
		if value, known := kpis[i].read(status); known {
			values[kpis[i].Name] = value
		}
	}
	return values
}

func share(text string) (float64, bool) {
	value, err := strconv.ParseFloat(text, 64)
	return value, err == nil && value >= 0 && value <= 1
}

func failureRate(started, failed int64) (float64, bool) {
	if started < 0 || failed < 0 || started+failed == 0 {
		return 0, false
	}
	return float64(failed) / float64(started+failed), true
}

const (
	// latencySamples and startSamples are the numbers of measurements for the quantiles; startSamples is per owner.
	latencySamples = 15
	startSamples   = 100
	// enoughStarts is the number of measurements that replace the quantiles that were read back after a restart.
	enoughStarts = 10
	// halfLife is the time after which starts and failures count half.
	halfLife = 24 * time.Hour
)

// Tracker measures one provider. It is not safe for concurrent use.
type Tracker struct {
	uptime  *Uptime
	latency *Samples
	owners  owners

	before    v1alpha1.KPIs
	halved    time.Time
	movedAway int64
}

// NewTracker returns a Tracker that continues from a status.
func NewTracker(from v1alpha1.KPIs, staleAfter time.Duration) *Tracker {
	t := &Tracker{
		uptime: newUptime(from.Uptime, staleAfter), latency: newSamples(latencySamples), owners: owners{},
		before: from, movedAway: from.MovedAway,
	}
	if from.Started+from.Failed > 0 {
		before := t.owners.of(others)
		before.started, before.failed = from.Started, from.Failed
	}
	if from.Halved != nil {
		t.halved = from.Halved.Time
	}
	return t
}

// Probe records one probe of the provider's API server: its success, and the time that it took.
func (t *Tracker) Probe(now time.Time, up bool, took time.Duration) {
	t.uptime.Observe(now, up)
	if up {
		t.latency.Add(took)
	}
	t.halve(now)
}

// PodStarted records that a container of an owner's pod was started, and the time since the pod's assignment.
func (t *Tracker) PodStarted(owner string, took time.Duration) {
	of := t.owners.of(owner)
	of.starts.Add(took)
	of.started++
}

// PodFailed records that an assigned pod of an owner was rejected, or did not start in time.
func (t *Tracker) PodFailed(owner string) { t.owners.of(owner).failed++ }

// PodMovedAway records that a pod was moved to another provider.
func (t *Tracker) PodMovedAway() { t.movedAway++ }

func (t *Tracker) halve(now time.Time) {
	if t.halved.IsZero() {
		t.halved = now
	}
	for now.Sub(t.halved) >= halfLife {
		t.owners.halve()
		t.halved = t.halved.Add(halfLife)
	}
}

// Latency returns the median time of the last answers; false if there was none.
func (t *Tracker) Latency() (time.Duration, bool) {
	if took, known := t.latency.Quantile(0.5); known {
		return took, true
	}
	if t.before.LatencyMilliseconds != nil {
		return time.Duration(*t.before.LatencyMilliseconds) * time.Millisecond, true
	}
	return 0, false
}

// PodStart returns the median and the ninth decile of the time that pods took to start; false if none started.
func (t *Tracker) PodStart() (p50, p90 time.Duration, known bool) {
	p50, samples := t.owners.starts(0.5)
	if samples < enoughStarts && t.before.PodStart != nil {
		return time.Duration(t.before.PodStart.P50Milliseconds) * time.Millisecond,
			time.Duration(t.before.PodStart.P90Milliseconds) * time.Millisecond, true
	}
	p90, _ = t.owners.starts(0.9)
	return p50, p90, samples > 0
}

// Status returns the KPIs in the form of the API.
func (t *Tracker) Status() v1alpha1.KPIs {
	started, failed := t.owners.counts()
	status := v1alpha1.KPIs{Uptime: t.uptime.Status(), Started: started, Failed: failed, MovedAway: t.movedAway}
	if !t.halved.IsZero() {
		halved := metav1.NewTime(t.halved)
		status.Halved = &halved
	}
	if took, known := t.Latency(); known {
		milliseconds := took.Milliseconds()
		status.LatencyMilliseconds = &milliseconds
	}
	if p50, p90, known := t.PodStart(); known {
		status.PodStart = &v1alpha1.PodStart{P50Milliseconds: p50.Milliseconds(), P90Milliseconds: p90.Milliseconds()}
	}
	return status
}
