package kpi

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

var begin = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC) // A constant, were there any of time.

func TestUptime(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps string // One minute each: u(p), d(own), n(ot observed).
		want  float64
		known bool
	}{
		{"nothing is known before the second look", "u", 0, false},
		{"always up", "uuuuu", 1, true},
		{"always down", "ddddd", 0, true},
		{"down a quarter of the time", "uuuud", 0.75, true},
		{"unobserved time does not count", "uunnnnnud", 0.5, true},
		{"an outage before unobserved time counts", "uddunnnnu", 1. / 3, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := newUptime(v1alpha1.Uptime{}, 90*time.Second)
			for i, step := range tc.steps {
				if step != 'n' {
					u.Observe(begin.Add(time.Duration(i)*time.Minute), step == 'u')
				}
			}
			share, known := u.Share(time.Hour)
			require.Equal(t, tc.known, known)
			require.InDelta(t, tc.want, share, 1e-9)
		})
	}
}

func TestUptimeIsOfTheWindow(t *testing.T) {
	u := newUptime(v1alpha1.Uptime{}, 90*time.Second)
	for i := range 181 { // The first hour down, two more up.
		u.Observe(begin.Add(time.Duration(i)*time.Minute), i > 60)
	}
	lastHour, _ := u.Share(time.Hour)
	all, _ := u.Share(24 * time.Hour)
	require.InDelta(t, 1, lastHour, 1e-9)
	require.InDelta(t, 2./3, all, 1e-9)
}

// TestUptimeSurvivesRestarts: for any observations, a history written and read back at any time goes on as if nothing
// had happened, shares stay between 0 and 1, and the history stays small.
func TestUptimeSurvivesRestarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		through, restarted := newUptime(v1alpha1.Uptime{}, time.Minute), newUptime(v1alpha1.Uptime{}, time.Minute)
		now := begin
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			up := rapid.Bool().Draw(t, "up")
			through.Observe(now, up)
			restarted.Observe(now, up)
			if rapid.Bool().Draw(t, "restart") {
				restarted = newUptime(restarted.Status(), time.Minute)
			}
		}
		require.Equal(t, through.Status(), restarted.Status())
		require.LessOrEqual(t, len(through.Status().Gaps), maxGaps)
		for _, window := range []time.Duration{time.Hour, 24 * time.Hour} {
			share, _ := through.Share(window)
			require.GreaterOrEqual(t, share, 0.)
			require.LessOrEqual(t, share, 1.)
		}
	})
}

func TestQuantilesAreOfTheLastSamples(t *testing.T) {
	s := newSamples(10)
	_, known := s.Quantile(0.5)
	require.False(t, known)
	for i := 1; i <= 15; i++ {
		s.Add(time.Duration(i) * time.Second)
	}
	require.Equal(t, 10, s.Len())
	for q, want := range map[float64]time.Duration{0: 6, 0.5: 10, 0.9: 14, 1: 15} {
		got, known := s.Quantile(q)
		require.True(t, known)
		require.Equal(t, want*time.Second, got, q)
	}
}

func TestTrackerGoesOnAfterARestart(t *testing.T) {
	tracker := NewTracker(v1alpha1.KPIs{}, time.Minute)
	require.Equal(t, v1alpha1.KPIs{}, tracker.Status(), "nothing is known, and nothing is claimed")

	tracker.Probe(begin, true, 20*time.Millisecond)
	tracker.Probe(begin.Add(30*time.Second), true, 40*time.Millisecond)
	tracker.PodStarted("c1", 2*time.Second)
	tracker.PodStarted("c1", 4*time.Second)
	tracker.PodFailed("c1")
	tracker.PodMovedAway()
	status := tracker.Status()
	require.Equal(t, int64(20), *status.LatencyMilliseconds)
	require.Equal(t, &v1alpha1.PodStart{P50Milliseconds: 2000, P90Milliseconds: 4000}, status.PodStart)

	again := NewTracker(status, time.Minute)
	require.Equal(t, status, again.Status())
	again.PodStarted("c1", time.Hour)
	p50, _, known := again.PodStart()
	require.True(t, known)
	require.Equal(t, 2*time.Second, p50, "one sample does not outweigh what was known")
	rate, _ := failureRate(again.owners.counts())
	require.InDelta(t, 0.25, rate, 1e-9)

	again.Probe(begin.Add(49*time.Hour), true, time.Millisecond)
	require.Equal(t, int64(0), again.Status().Failed, "halved twice")
}

// Tenants may have pods whose images do not exist, or providers that are consumers pods of their own.
func TestNoOwnerDecidesAboutAKPIAlone(t *testing.T) {
	tracker := NewTracker(v1alpha1.KPIs{}, time.Minute)
	for _, owner := range []string{"c1", "c2"} {
		for range 100 {
			tracker.PodStarted(owner, 3*time.Second)
		}
	}
	for range 2000 {
		tracker.PodFailed("attacker")
		tracker.PodStarted("attacker", 10*time.Minute)
	}
	status := tracker.Status()
	values := ValuesOf(&status)
	require.Zero(t, values[FailureRate])
	require.InDelta(t, 3, values[PodStartP50Seconds], 1e-9)
	require.InDelta(t, 3, values[PodStartP90Seconds], 1e-9)
	again := NewTracker(status, time.Minute).Status()
	require.Zero(t, ValuesOf(&again)[FailureRate], "nor after a restart")

	// The result of most owners' pods counts.
	for _, owner := range []string{"c1", "c2"} {
		for range 300 {
			tracker.PodFailed(owner)
		}
	}
	status = tracker.Status()
	require.InDelta(t, 0.75, ValuesOf(&status)[FailureRate], 1e-2)

	// Owners without end are one.
	for i := range 10_000 {
		tracker.PodFailed(strconv.Itoa(i))
	}
	require.LessOrEqual(t, len(tracker.owners), maxOwners+1)
	for day := range 20 {
		tracker.Probe(begin.Add(time.Duration(day)*24*time.Hour), true, time.Second)
	}
	require.Empty(t, tracker.owners)
}

func TestValuesAreThoseOfTheStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		status v1alpha1.KPIs
		want   Values
	}{
		"nothing is known": {v1alpha1.KPIs{}, Values{}},
		"all are known": {
			v1alpha1.KPIs{
				Uptime:              v1alpha1.Uptime{LastHour: "1.0000", LastDay: "0.9876", LastWeek: "0.5", LastMonth: "0"},
				LatencyMilliseconds: ptr.To(int64(12)), Started: 3, Failed: 1,
				PodStart: &v1alpha1.PodStart{P50Milliseconds: 2500, P90Milliseconds: 60_000},
			},
			Values{
				Uptime1h: 1, Uptime24h: 0.9876, Uptime7d: 0.5, Uptime30d: 0, LatencyMilliseconds: 12, FailureRate: 0.25,
				PodStartP50Seconds: 2.5, PodStartP90Seconds: 60,
			},
		},
		"what is out of range is unknown": {
			v1alpha1.KPIs{
				Uptime:              v1alpha1.Uptime{LastHour: "NaN", LastDay: "1.1", LastWeek: "-0.1", LastMonth: "often"},
				LatencyMilliseconds: ptr.To(int64(-1)), Started: -3, Failed: 1,
				PodStart: &v1alpha1.PodStart{P50Milliseconds: -1, P90Milliseconds: -1},
			},
			Values{},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, ValuesOf(&tc.status)) })
	}
}
