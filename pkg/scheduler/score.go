package scheduler

import (
	"math"
	"time"
)

// The score plugins, in the order of their names.
const (
	pluginClose = iota
	pluginExpression
	pluginFailures
	pluginFree
	pluginLatency
	pluginPacked
	pluginPrice
	pluginSpread
	pluginStart
	pluginUptime
	pluginCount
)

var pluginNames = [pluginCount]string{
	pluginClose:      "close",
	pluginExpression: "expression",
	pluginFailures:   "failures",
	pluginFree:       "free",
	pluginLatency:    "latency",
	pluginPacked:     "packed",
	pluginPrice:      "price",
	pluginSpread:     "spread",
	pluginStart:      "start",
	pluginUptime:     "uptime",
}

// defaultWeights are those of a policy that names none. The expression is a policy's own, and there only if it has one.
func defaultWeights() [pluginCount]int64 {
	return [pluginCount]int64{
		pluginExpression: 3,
		pluginFailures:   2,
		pluginFree:       3,
		pluginLatency:    1,
		pluginSpread:     2,
		pluginStart:      1,
		pluginUptime:     2,
	}
}

// points are thousandths of a point of a score: scores are compared as whole numbers, which add up in any order.
type points int32

const (
	best    points = 100_000
	neutral        = best / 2
)

// share returns the points of a share of 0 to 1.
func share(s float64) points { return points(math.Round(min(max(s, 0), 1) * float64(best))) }

const (
	// latencyReference and startReference are what scores like an unknown: half.
	latencyReference = 100 * time.Millisecond
	startReference   = 10 * time.Second
)

// The windows of an uptime, from the shortest.
const (
	window1h = iota
	window24h
	window7d
	window30d
	windowCount
)

// measured are the scores that a provider's KPIs give it.
type measured struct {
	uptime                   [windowCount]points
	latency, start, failures points
}

func measure(k *KPIs) measured {
	m := measured{
		latency:  duration(k.Latency, latencyReference),
		start:    duration(k.PodStartP50, startReference),
		failures: neutral,
	}
	if isShare(k.FailureRate) {
		m.failures = best - share(*k.FailureRate)
	}
	uptime := neutral
	for window, known := range [windowCount]*float64{k.Uptime1h, k.Uptime24h, k.Uptime7d, k.Uptime30d} {
		if isShare(known) {
			uptime = share(*known)
		}
		m.uptime[window] = uptime
	}
	return m
}

// duration is 100 for none, 50 for the reference, and falls towards 0.
func duration(d *time.Duration, reference time.Duration) points {
	if d == nil || *d < 0 {
		return neutral
	}
	return share(float64(reference) / (float64(reference) + float64(*d)))
}

func isShare(s *float64) bool { return s != nil && *s >= 0 && *s <= 1 }

// window returns the longest window that is not longer than asked for.
func window(asked time.Duration) int {
	const day = 24 * time.Hour
	switch {
	case asked >= 30*day:
		return window30d
	case asked >= 7*day:
		return window7d
	case asked >= day, asked <= 0:
		return window24h
	}
	return window1h
}
