package simulate

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// Each fault names its field, and a remedy.
func TestFaultsOfScenarios(t *testing.T) {
	for name, tc := range map[string]struct{ replace, by, fault string }{
		"an unknown field": {"granted:", "grants: {}\n  granted:", `unknown field "providers[0].grants"`},
		"a field twice":    {"duration: 3h", "duration: 3h\nduration: 4h", `key "duration" already set`},
		"a quantity":       {"cpu: 1,", "cpu: one,", "consumers[0].workloads[0].requests[cpu]: Invalid value: \"one\""},
		"a duration":       {"mean: 1h", "mean: 1 hour", "consumers[0].workloads[0].lifetime.mean: Invalid value: \"1 hour\""},
		"a time":           {"2026-03-02T00:00:00Z", "today", `start: Invalid value: "today"`},
		"a number":         {"initial: 3", "initial: three", `consumers[0].workloads[0].arrivals.initial: Invalid value: "three"`},
		"no start":         {"start: 2026-03-02T00:00:00Z", "", "start: Required value: give a time, such as"},
		"no duration":      {"duration: 3h", "", "duration: Invalid value: \"0s\": must be at least 1m0s"},
		"no providers": {
			oneProvider[strings.Index(oneProvider, "- id: oslo"):strings.Index(oneProvider, "consumers:")],
			"",
			"providers: Required value: give at least one provider",
		},
		"an id":       {"id: oslo", "id: Oslo", `providers[0].id: Invalid value: "Oslo"`},
		"an id twice": {"\nconsumers:", with(torino, "turin", "oslo"), `providers[1].id: Duplicate value: "oslo"`},
		"an id of several": {
			"\nconsumers:",
			with(torino, "id: turin", "id: oslo-1\n- {id: oslo, count: 2, granted: {cpu: 1}}\n- id: x"),
			"Duplicate",
		},
		"a count": {
			"id: oslo",
			"id: oslo\n  count: 100000",
			"providers[0].count: Invalid value: 100000: use 1 to 10000 providers in all",
		},
		"nothing granted": {
			"granted: {cpu: 2, memory: 8Gi, pods: 10}",
			"granted: {}",
			"providers[0].granted: Required value: give resources",
		},
		"a negative amount": {"cpu: 2,", "cpu: -2,", `providers[0].granted[cpu]: Invalid value: "-2": must not be negative`},
		"a currency":        {"EUR", "euros", "providers[0].prices[0].currency: Invalid value: \"euros\": use a code of ISO 4217"},
		"a price": {
			`"0.05"`,
			`"-1"`,
			"providers[0].prices[0].perHour[cpu]: Invalid value: \"-1\": must be a decimal number in quotes",
		},
		"a price, unquoted": {`"0.05"`, "0.05", "providers[0].prices[0].perHour[cpu]: Invalid value: 0.05"},
		"an uptime": {
			"granted:",
			"kpis: {uptime: 98}\n  granted:",
			"providers[0].kpis.uptime: Invalid value: 98: must be 0 to 1",
		},
		"a latency": {"granted:", "kpis: {latency: -1s}\n  granted:", "providers[0].kpis.latency"},
		"a stop":    {"granted:", "stop: -1s\n  granted:", "providers[0].stop"},
		"a start":   {"granted:", "start: {sigma: 1}\n  granted:", "providers[0].start.mean: Required value: give a duration"},
		"a distribution": {
			"mean: 1h",
			"distribution: normal, mean: 1h",
			"supported values: \"fixed\", \"exponential\", \"lognormal\"",
		},
		"a negative mean": {"mean: 1h", "mean: -1h", "lifetime.mean: Invalid value: \"-1h0m0s\": must be at least 0s"},
		"no mean":         {"mean: 1h", "", "lifetime.mean: Required value: give a duration"},
		"a sigma": {
			"mean: 1h",
			"mean: 1h, sigma: 1",
			"lifetime.sigma: Invalid value: 1: is for lognormal only",
		},
		"a profile":    {"initial: 3", "profile: [1, 2]", "arrivals.profile: Invalid value: 2: give 24 numbers"},
		"a rate":       {"initial: 3", "perHour: -1", "arrivals.perHour: Invalid value: -1: must be 0 to 1000000"},
		"initial pods": {"initial: 3", "initial: -3", "arrivals.initial: Invalid value: -3: must be 0 to 1000000"},
		"no requests":  {"requests: {cpu: 1, memory: 1Gi}", "", "requests: Required value: give resources"},
		"a label":      {"name: web,", "name: web, labels: {a b: c},", "workloads[0].labels"},
		"no consumers": {"consumers:\n- id: shop\n  workloads:", "consumers: []\nx:", `unknown field "x"`},
		"a workload twice": {
			"  workloads:",
			"  workloads:\n  - {name: web, arrivals: {}, lifetime: {mean: 1h}, requests: {cpu: 1}}",
			"workloads[1].name: Duplicate",
		},
		"a namespace of two": {
			"  workloads:",
			"  workloads: []\n- id: bank\n  workloads:\n  - {name: a, namespace: shop, arrivals: {}, lifetime: {mean: 1h}, " +
				"requests: {cpu: 1}}\n" +
				"- id: shop2\n  workloads:\n  - {name: b, namespace: shop, arrivals: {}, lifetime: {mean: 1h}, requests: {cpu: 1}}\n" +
				"- id: z\n  workloads:",
			"consumers[2].workloads[0].namespace: Invalid value: \"shop\": is a namespace of consumer bank",
		},
		"an event's time": {
			"consumers:",
			"events: [{at: 4h, provider: oslo, action: Fail}]\nconsumers:",
			"events[0].at: Invalid value: \"4h0m0s\": use a time since start",
		},
		"an event's provider": {
			"consumers:",
			"events: [{at: 1h, provider: rome, action: Fail}]\nconsumers:",
			"events[0].provider: Invalid value: \"rome\": there is no such provider",
		},
		"an action": {
			"consumers:",
			"events: [{at: 1h, provider: oslo, action: Explode}]\nconsumers:",
			"events[0].action: Unsupported value: \"Explode\"",
		},
		"an event without any": {
			"consumers:",
			"events: [{at: 1h, provider: oslo}]\nconsumers:",
			"events[0]: Required value: set action, attributes, prices or granted",
		},
		"a policy's filter": {
			"consumers:",
			"policies: [{metadata: {name: p}, spec: {filter: \"provider.\"}}]\nconsumers:",
			"policies[0]: Invalid value: spec.filter",
		},
		"a policy's kind": {
			"consumers:",
			"policies: [{kind: Pod, metadata: {name: p}}]\nconsumers:",
			"policies[0].kind: Invalid value: \"Pod\": must be PlacementPolicy",
		},
		"a policy's name": {"consumers:", "policies: [{spec: {}}]\nconsumers:", "policies[0].metadata.name: Invalid value: \"\""},
		"a policy twice": {
			"consumers:",
			"policies: [{metadata: {name: p}}, {metadata: {name: p}}]\nconsumers:",
			"policies[1].metadata.name: Duplicate",
		},
		"a policy's weight": {
			"consumers:",
			"policies: [{metadata: {name: p}, spec: {weights: [{name: pries, weight: 1}]}}]\nconsumers:",
			"spec.weights",
		},
		"a policy's field": {
			"consumers:",
			"policies: [{metadata: {name: p}, spec: {weight: 1}}]\nconsumers:",
			`unknown field "policies[0].spec.weight"`,
		},
		"a manifest": {
			"consumers:",
			"providerClusters: [{metadata: {name: p}}]\nconsumers:",
			"providerClusters[0].status.virtualNodes: Required value",
		},
		"a setting": {
			"consumers:",
			"broker: {probeInterval: 1ms}\nconsumers:",
			"broker.probeInterval: Invalid value: \"1ms\": must be at least 1s",
		},
		"other settings": {
			"consumers:", "broker: {failoverAfter: 0s, suspicionWindow: 0s, reserveAfter: -1s, movesAtOnce: 0}\nconsumers:",
			"broker.movesAtOnce",
		},
		"no mapping": {oneProvider, "- a list", "must"},
	} {
		t.Run(name, func(t *testing.T) {
			text := with(oneProvider, tc.replace, tc.by)
			require.NotEqual(t, oneProvider, text)
			_, err := Parse([]byte(text))
			if name == "no mapping" {
				require.Error(t, err)
				return
			}
			require.ErrorContains(t, err, tc.fault)
		})
	}
}

func TestLoadExtends(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("day.yaml", "name: a-day\n"+oneProvider)
	other := write("other.yaml", "extends: day.yaml\nseed: 3\npolicies: [{metadata: {name: p}}]\n")
	sc, err := Load(other, nil)
	require.NoError(t, err)
	require.Equal(t, "other", sc.Name, "the name of a file is its own")
	require.Equal(t, uint64(3), sc.Seed)
	require.Len(t, sc.Policies, 1)
	require.Len(t, sc.Consumers, 1)

	_, err = Load(write("unknown.yaml", "extends: day.yaml\nsed: 3\n"), nil)
	require.ErrorContains(t, err, `unknown.yaml: unknown field "sed"`)
	_, err = Load(write("loop.yaml", "extends: loop.yaml\n"), nil)
	require.ErrorContains(t, err, "extends: more than 10 files extend each other")
	_, err = Load(write("number.yaml", "extends: 3\n"), nil)
	require.ErrorContains(t, err, "number.yaml: extends: must be the path of another scenario")
	_, err = Load(write("missing.yaml", "extends: nowhere.yaml\n"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Load(write("list.yaml", "- a\n"), nil)
	require.ErrorContains(t, err, "must be a mapping of fields")
	_, err = Load(write("broken.yaml", "a: [\n"), nil)
	require.ErrorContains(t, err, "broken.yaml")
}

// The mean of a distribution is the one that is given.
func TestDistributions(t *testing.T) {
	const n = 200_000
	for _, d := range []Distribution{
		{Mean: hour()},
		{Distribution: fixed, Mean: hour()},
		{Distribution: exponential, Mean: hour()},
		{Distribution: lognormal, Mean: hour(), Sigma: 0.5},
		{Distribution: lognormal, Mean: hour()},
	} {
		sum := 0.0
		for i := range n {
			sum += d.at((float64(i) + 0.5) / n).Hours()
		}
		require.InDelta(t, 1, sum/n, 0.01, d)
	}
	rapid.Check(t, func(t *rapid.T) {
		d := Distribution{
			Distribution: rapid.SampledFrom([]string{fixed, exponential, lognormal}).Draw(t, "distribution"),
			Mean:         metav1.Duration{Duration: time.Duration(rapid.Int64Range(1, int64(maxDuration)).Draw(t, "mean"))},
			Sigma:        rapid.Float64Range(0, 10).Draw(t, "sigma"),
		}
		low, high := rapid.Float64Range(0, 0.9999999).Draw(t, "low"), rapid.Float64Range(0, 0.9999999).Draw(t, "high")
		if low > high {
			low, high = high, low
		}
		require.GreaterOrEqual(t, d.at(low), time.Duration(0))
		require.LessOrEqual(t, d.at(low), d.at(high))
	})
}

func hour() metav1.Duration { return metav1.Duration{Duration: time.Hour} }

func TestArrivalsFollowTheirProfile(t *testing.T) {
	profile := make([]float64, hoursOfDay)
	profile[8], profile[9] = 1, 3
	s := newStream(1, "shop", "web", &Arrivals{PerHour: 100, Profile: profile})
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	end := start.AddDate(0, 0, 100)
	byHour := map[int]int{}
	for at, comes := s.next(start, end); comes; at, comes = s.next(at, end) {
		byHour[at.Hour()]++
	}
	require.Len(t, byHour, 2)
	require.InDelta(t, 100*100, byHour[8], 5*math.Sqrt(100*100))
	require.InDelta(t, 300*100, byHour[9], 5*math.Sqrt(300*100))
	for _, rate := range []float64{0, 1e-300, 1e-9} {
		_, comes := newStream(1, "shop", "web", &Arrivals{PerHour: rate}).next(start, end)
		require.False(t, comes, rate)
	}
}
