package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNothingFiresWhenAllIsWell(t *testing.T) {
	require.Empty(t, evaluate(t, text(healthy()), 0, time.Hour).firing())
}

func TestEachAlertFiresWhenItShouldAndOnlyThen(t *testing.T) {
	patience := patiences(t)
	for name, alert := range cases() {
		t.Run(name, func(t *testing.T) {
			for when, change := range alert.fires {
				require.Contains(t, summaries(t, change, time.Hour), name+": "+alert.summary, when)
				requireQuiet(t, name, summaries(t, change, patience[name]-time.Minute), when+", but not for long enough")
			}
			for when, change := range alert.quiet {
				requireQuiet(t, name, summaries(t, change, time.Hour), when)
			}
		})
	}
}

func requireQuiet(t *testing.T, alert string, summaries []string, when string) {
	t.Helper()
	for _, summary := range summaries {
		require.False(t, strings.HasPrefix(summary, alert+": "), "%s: %s", when, summary)
	}
}

// patiences returns how long each alert waits before it fires.
func patiences(t *testing.T) map[string]time.Duration {
	t.Helper()
	file, err := root.rules()
	require.NoError(t, err)
	all := map[string]time.Duration{}
	for _, r := range file.all() {
		if r.For != "" {
			all[r.Alert], err = time.ParseDuration(r.For)
			require.NoError(t, err)
		}
	}
	return all
}

// summaries returns the alerts that fire after an hour in which something was not healthy. The rules are evaluated only
// in the last part of that hour, which may be empty.
func summaries(t *testing.T, change change, evaluatedFor time.Duration) []string {
	t.Helper()
	series := healthy()
	maps.Copy(series, change)
	var all []string
	for _, alert := range evaluate(t, text(series), time.Hour-evaluatedFor, time.Hour).firing() {
		assert.NotContains(t, alert.description, "<no value>")
		assert.NotContains(t, alert.description, "  ", "a label that is empty")
		all = append(all, alert.name+": "+alert.summary)
	}
	return all
}

// The alert compares with the state a day ago.
func TestACatalogThatWasThereIsMissed(t *testing.T) {
	const name = "LiqoCatalogDown"
	has := func(series string) bool {
		alerts := evaluate(t, series, 24*time.Hour+10*time.Minute, 24*time.Hour+30*time.Minute).firing()
		return slices.ContainsFunc(alerts, func(f firing) bool { return f.name == name })
	}
	require.True(t, has(of("up", "", web, "1x1440 0x60")))
	require.True(t, has(of("up", "", web, "1x1440")))
	require.False(t, has(of("up", "", web, "1x1500")))
	require.False(t, has(of("up", "", web, "1x1466 0x34")), "it will be there again")
	require.False(t, has(of("up", "", leader, "1x1500")), "there never was one")
}

func TestRecords(t *testing.T) {
	series := healthy()
	maps.Copy(series, change{
		"schedulable p2": of("liqo_broker_provider_schedulable", `provider="p2"`, leader, "0x100"),
		"offers": of("liqo_broker_offers", `consumer="c1",resource="cpu"`, leader, "6x100") +
			of("liqo_broker_offers", `consumer="c2",resource="cpu"`, leader, "9x100") +
			of("liqo_broker_offers_available", `resource="cpu"`, leader, "20x100"),
		"moves": of("liqo_broker_moves_total", `reason="refused"`, leader, "0x50 8x50") +
			of("liqo_broker_moves_total", `reason="refused"`, standby, "0x100"),
		"assigned p1": of("liqo_broker_capacity_assigned", `provider="p1",resource="cpu"`, leader, "8x100"),
		"decision":    waits("liqo_broker_decision_duration_seconds_bucket", "", leader, "0+60x100", "0+60x100"),
		"start":       waits("liqo_broker_pod_start_seconds_bucket", "", leader, "0+60x100", "0+60x100"),
	})
	e := evaluate(t, text(series), 0, time.Hour)
	records := map[string]map[string]float64{
		"provider:liqo_broker_provider_up:max":          {`{provider="p1"}`: 1, `{provider="p2"}`: 1},
		"provider:liqo_broker_provider_schedulable:max": {`{provider="p1"}`: 1, `{provider="p2"}`: 0},
		"provider_resource:liqo_broker_capacity_assigned:ratio": {
			`{provider="p1", resource="cpu"}`: 0.8,
			`{provider="p2", resource="cpu"}`: 0.5,
		},
		"resource:liqo_broker_capacity_assigned:ratio":     {`{resource="cpu"}`: 0.8},
		"resource:liqo_broker_offers:ratio":                {`{resource="cpu"}`: 0.75},
		"reason:liqo_broker_moves:increase15m":             {`{reason="refused"}`: 8},
		"job:liqo_broker_decision_duration_seconds:p99_5m": {`{}`: 0.099},
		"job:liqo_broker_assignment_wait_seconds:p99_5m":   {`{}`: 0.099},
		"job:liqo_broker_pod_start_seconds:p90_15m":        {`{}`: 0.09},
		"job:liqo_broker_ipam_errors:ratio5m":              {},
		"job:liqo_catalog_errors:ratio5m":                  {},
		"job:liqo_catalog_request_duration_seconds:p99_5m": {`{}`: 0.099},
	}
	for name, want := range records {
		got := e.recorded(name)
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), name)
		for labels, value := range want {
			require.InDelta(t, value, got[labels], 0.02*value+0.001, name)
		}
	}
	file, err := root.rules()
	require.NoError(t, err)
	for _, r := range file.all() {
		if r.Record != "" {
			require.Contains(t, records, r.Record, "a record without a test")
		}
	}
}
