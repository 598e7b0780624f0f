package kpi

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

const (
	// latencySamples and startSamples are how many measurements the quantiles are of.
	latencySamples = 15
	startSamples   = 100
	// enoughStarts is from when on measured quantiles replace those read back after a restart.
	enoughStarts = 10
	// halfLife is after what time starts and failures count half.
	halfLife = 24 * time.Hour
)

// Tracker keeps the KPIs of one provider. It is not safe for concurrent use.
type Tracker struct {
	uptime  *Uptime
	latency *Samples
	starts  *Samples

	before          v1alpha1.KPIs
	started, failed int64
	halved          time.Time
	movedAway       int64
}

// NewTracker goes on from what the status says.
func NewTracker(from v1alpha1.KPIs, staleAfter time.Duration) *Tracker {
	t := &Tracker{
		uptime: NewUptime(from.Uptime, staleAfter), latency: NewSamples(latencySamples), starts: NewSamples(startSamples),
		before: from, started: from.Started, failed: from.Failed, movedAway: from.MovedAway,
	}
	if from.Halved != nil {
		t.halved = from.Halved.Time
	}
	return t
}

// Probe notes one answer of the provider's API server, or that there was none.
func (t *Tracker) Probe(now time.Time, up bool, took time.Duration) {
	t.uptime.Observe(now, up)
	if up {
		t.latency.Add(took)
	}
	t.halve(now)
}

// PodStarted notes that a pod became Ready, took after it was assigned.
func (t *Tracker) PodStarted(took time.Duration) {
	t.starts.Add(took)
	t.started++
}

// PodFailed notes that an assigned pod was refused, or did not start in time.
func (t *Tracker) PodFailed() { t.failed++ }

// PodMovedAway notes that a pod was moved elsewhere.
func (t *Tracker) PodMovedAway() { t.movedAway++ }

func (t *Tracker) halve(now time.Time) {
	if t.halved.IsZero() {
		t.halved = now
	}
	for now.Sub(t.halved) >= halfLife {
		t.started, t.failed, t.halved = t.started/2, t.failed/2, t.halved.Add(halfLife)
	}
}

// Uptime is the history of the provider.
func (t *Tracker) Uptime() *Uptime { return t.uptime }

// FailureRate is the share of the assignments that failed, from 0 to 1; false if there was none.
func (t *Tracker) FailureRate() (float64, bool) {
	if t.started+t.failed == 0 {
		return 0, false
	}
	return float64(t.failed) / float64(t.started+t.failed), true
}

// Latency is the median time of the last answers; false if there was none.
func (t *Tracker) Latency() (time.Duration, bool) {
	if took, known := t.latency.Quantile(0.5); known {
		return took, true
	}
	if t.before.LatencyMilliseconds != nil {
		return time.Duration(*t.before.LatencyMilliseconds) * time.Millisecond, true
	}
	return 0, false
}

// PodStart are the median and the ninth decile of the time that pods took to start; false if none has.
func (t *Tracker) PodStart() (p50, p90 time.Duration, known bool) {
	if t.starts.Len() < enoughStarts && t.before.PodStart != nil {
		return time.Duration(t.before.PodStart.P50Milliseconds) * time.Millisecond,
			time.Duration(t.before.PodStart.P90Milliseconds) * time.Millisecond, true
	}
	p50, known = t.starts.Quantile(0.5)
	p90, _ = t.starts.Quantile(0.9)
	return p50, p90, known
}

// Status writes all of it.
func (t *Tracker) Status() v1alpha1.KPIs {
	status := v1alpha1.KPIs{
		Uptime: t.uptime.Status(), Started: t.started, Failed: t.failed, MovedAway: t.movedAway,
	}
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
