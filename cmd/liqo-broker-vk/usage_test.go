package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// writtenLedger has a pod of a consumer that moved, and one of the broker's own cluster, at a provider without prices.
func writtenLedger(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ledger.db")
	store, err := ledger.Open(t.Context(), file)
	require.NoError(t, err)
	_, _, err = store.Lead(t.Context())
	require.NoError(t, err)
	day := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	book := ledger.NewBook(nil)
	observe := func(consumer, pod, provider string, from, to time.Time) {
		book.Observe(from, &ledger.Holding{
			UID: types.UID(pod), Consumer: consumer, Namespace: "shop-" + consumer, Pod: pod, Workload: "web",
			Provider: provider, Assigned: from,
			Requests: resources.Amounts{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 1 << 30, corev1.ResourcePods: 1},
		})
		book.Release(to, types.UID(pod))
	}
	observe("consumer1", "web-0", "oslo", day, day.Add(12*time.Hour))
	observe("consumer1", "web-0", "turin", day.Add(12*time.Hour), day.Add(30*time.Hour))
	observe("", "job-0", "madrid", day, day.Add(time.Hour))
	prices := map[string]ledger.PriceChange{
		"oslo":  {At: day, Lists: price.Lists{{Currency: "EUR", PerHour: map[corev1.ResourceName]float64{"cpu": 0.05, "memory": 0.002}}}},
		"turin": {At: day, Lists: price.Lists{{Currency: "EUR", PerHour: map[corev1.ResourceName]float64{"cpu": 0.04}}}},
	}
	require.NoError(t, store.Write(t.Context(), day.Add(30*time.Hour), book.Changed(), prices))
	require.NoError(t, store.Close())
	return file
}

// usage runs the command, and returns its output.
func usage(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newUsageCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestUsage(t *testing.T) {
	file := writtenLedger(t)
	run := func(args ...string) string {
		out, err := usage(t, append([]string{"--ledger=" + file, "--from=2026-11-01", "--to=2026-12-01"}, args...)...)
		require.NoError(t, err)
		return out
	}
	require.Equal(t, `CONSUMER    PROVIDER   CPU-HOURS   GIB-HOURS   POD-HOURS   COST
(broker)    madrid     2.00        1.00        1.00        1.00 pod-hours without a price
consumer1   oslo       24.00       12.00       12.00       1.224 EUR
consumer1   turin      36.00       18.00       18.00       1.44 EUR
`, run())
	require.Equal(t, `DAY          CPU-HOURS   GIB-HOURS   POD-HOURS   COST
2026-11-02   48.00       24.00       24.00       2.184 EUR
2026-11-03   12.00       6.00        6.00        0.48 EUR
`, run("--consumer=consumer1", "--by=day"))
	require.Contains(t, run("--consumer=", "--by=pod"), "shop-/job-0")

	var printed struct{ Rows []ledger.Row }
	require.NoError(t, json.Unmarshal([]byte(run("-o", "json", "--by=workload")), &printed))
	require.Len(t, printed.Rows, 1)
	require.InDelta(t, 2.664, printed.Rows[0].Cost["EUR"], 1e-9)

	rows, err := csv.NewReader(bytes.NewBufferString(run("-o", "csv"))).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+(30+1)*3, "an hour of a resource each")
}

func TestUsageOfWrongArguments(t *testing.T) {
	file := writtenLedger(t)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no ledger":      {[]string{"--ledger=/does/not/exist"}, "ledger /does/not/exist"},
		"a day":          {[]string{"--from=yesterday"}, "--from=yesterday: use a day such as 2026-11-01"},
		"an order":       {[]string{"--from=2026-11-02", "--to=2026-11-01"}, "make --to later than --from"},
		"an output":      {[]string{"-o", "yaml"}, "--output=yaml: use one of table, json, csv"},
		"a dimension":    {[]string{"--by=weekday"}, "--by=weekday: use one or more of day, consumer"},
		"other argument": {[]string{"november"}, "november"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := usage(t, append([]string{"--ledger=" + file}, tc.args...)...)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
