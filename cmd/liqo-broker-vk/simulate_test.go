package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/plugin"
)

const aDay = "../../docs/simulate/day.yaml"

// simulated runs the command, and returns its output.
func simulated(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, progress bytes.Buffer
	err := run(t.Context(), append([]string{"simulate"}, args...), &out, &progress)
	return out.String(), err
}

func TestSimulate(t *testing.T) {
	table, err := simulated(t, aDay)
	require.NoError(t, err)
	require.Contains(t, table, "pods arrived")
	again, err := simulated(t, aDay, "--output=table")
	require.NoError(t, err)
	require.Equal(t, table, again)

	text, err := simulated(t, aDay, "../../docs/simulate/price-first.yaml", "-o", "json")
	require.NoError(t, err)
	var read struct {
		Scenarios []struct{ Scenario string }
		Different []any
	}
	require.NoError(t, json.Unmarshal([]byte(text), &read))
	require.Equal(t, "price-first", read.Scenarios[1].Scenario)
	require.NotEmpty(t, read.Different)

	file := filepath.Join(t.TempDir(), "page.html")
	text, err = simulated(t, aDay, "-o", "html", "--output-file", file)
	require.NoError(t, err)
	require.Empty(t, text)
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(page), "<!DOCTYPE html>")
}

func TestSimulateOfWrongArguments(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no scenario": {nil, "requires at least 1 arg"},
		"no file":     {[]string{"nowhere.yaml"}, "nowhere.yaml"},
		"an output":   {[]string{aDay, "-o", "yaml"}, "--output=yaml: use one of table, json, csv, html"},
		"a directory": {[]string{aDay, "--output-file", t.TempDir()}, "is a directory"},
		"a fault":     {[]string{writtenScenario(t, "duration: 24h")}, "start: Required value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := simulated(t, tc.args...)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func writtenScenario(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scenario.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestSimulateFromACluster(t *testing.T) {
	f := newFederation(t)
	file := writtenScenario(t, `
duration: 2h
consumers:
- id: consumer2
  workloads:
  - {name: new, namespace: lab-consumer2, arrivals: {initial: 3}, lifetime: {mean: 30m}, requests: {cpu: 1}}
events:
- {at: 1h, provider: provider1, action: Drain}
`)
	cmd := newSimulateCommand(plugin.Plugin{Open: f.open})
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{file, "--from-cluster", "-o", "csv"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	rows, err := csv.NewReader(&out).ReadAll()
	require.NoError(t, err)
	places := map[string]string{}
	for _, row := range rows[1:] {
		places[row[2]+"/"+row[3]] = row[9]
		require.Equal(t, "2025-06-01T12:00:00Z", row[5])
	}
	require.Equal(t, map[string]string{
		"shop-consumer1/web-0-1": "provider1>provider2", "shop-consumer1/web-1-1": "provider2",
		"lab-consumer2/train-0-1": "provider1>provider2", "shop-consumer1/db-0-1": "",
		"lab-consumer2/new-1": "provider2", "lab-consumer2/new-2": "provider2", "lab-consumer2/new-3": "provider2",
	}, places, "provider3 is not ready, and db-0 is too large for the others")
}

func TestSimulateEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	err := run(ctx, []string{"simulate", aDay}, &out, &out)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "scenario day, after 0% of its time")
	require.Empty(t, out.String())
}

func TestProgressOfASimulation(t *testing.T) {
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	progress := progressOf(&out, "day", func() time.Time { return now })
	progress(0.1)
	now = now.Add(progressInterval)
	progress(0.5)
	progress(0.6)
	require.Equal(t, "day: 50%\n", out.String())
}
