package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheDashboardIsShownOnScrapes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	first := file("1", `# TYPE liqo_broker_moves_total counter
liqo_broker_moves_total{reason="refused"} 0
liqo_broker_capacity_assigned{provider="p1",resource="memory"} 1073741824
liqo_broker_capacity_granted{provider="p1",resource="memory"} 4294967296
liqo_broker_pod_start_seconds_bucket{le="0.5"} 0
liqo_broker_pod_start_seconds_bucket{le="+Inf"} 0
`)
	second := file("2", `liqo_broker_moves_total{reason="refused"} 8
liqo_broker_capacity_assigned{provider="p1",resource="memory"} 1073741824
liqo_broker_capacity_granted{provider="p1",resource="memory"} 4294967296
liqo_broker_capacity_free{provider="p1",resource="memory"} 3221225472
liqo_broker_pod_start_seconds_bucket{le="0.5"} 10
liqo_broker_pod_start_seconds_bucket{le="+Inf"} 10
liqo_broker_provider_condition{provider="p1",condition="Ready"} 1
process_resident_memory_bytes 52428800
`)
	var out strings.Builder
	require.NoError(t, root.show([]string{"liqo-broker/leader=" + first, "liqo-broker/leader=" + second}, 30*time.Second, &out))
	for _, line := range []string{
		"### Is it full?",
		"| Memory assigned | p1 | 25 % |",
		"| Free memory | p1 | 3 GiB |",
		"| Conditions of the providers | p1 Ready | 1 |",
		"| From assignment to ready | p50 | 250ms |",
		"|  | p99 | 495ms |",
		"| Memory | liqo-broker leader | 50 MiB |",
		"| Streams | | — |",
	} {
		require.Contains(t, out.String(), line+"\n")
	}
	require.Regexp(t, `\| Moves \| refused \| (8|9|1[0-6])(\.\d+)? \|`, out.String(), "Prometheus extrapolates")

	require.ErrorContains(t, root.show([]string{"nothing"}, time.Second, &out), "nothing is not JOB/POD=FILE")
	require.ErrorIs(t, run([]string{"show"}, &out), errUsage)
	require.ErrorContains(t, root.show([]string{"a/b=" + file("3", "no metric at all\n")}, time.Second, &out), filepath.Join(dir, "3"))
}
