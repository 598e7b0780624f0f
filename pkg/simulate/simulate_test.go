package simulate

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// options are the defaults of the broker's flags.
func options() Options {
	return Options{
		State: state.Config{
			MovesAtOnce: 500, SuspicionWindow: time.Minute, ProbeInterval: 5 * time.Second, ReserveAfter: 5 * time.Minute,
		},
		Rules:        placement.Rules{Failover: v1alpha1.FailoverMove, FailoverAfter: time.Minute, PendingTimeout: 2 * time.Minute},
		ProbeTimeout: 3 * time.Second,
	}
}

func run(t *testing.T, text string) *Report {
	t.Helper()
	sc, err := Parse([]byte(text))
	require.NoError(t, err)
	r, err := Run(t.Context(), sc, options())
	require.NoError(t, err)
	checkReport(t, sc, r)
	return r
}

// checkReport checks the sums of a report, which hold for each scenario.
func checkReport(t require.TestingT, sc *Scenario, r *Report) {
	require.Equal(t, r.Pods.Arrived, r.Pods.Placed+r.Pods.Never)
	require.Equal(t, r.Pods.Arrived, r.Pods.Ended+r.Pods.Running+r.Pods.Waiting)
	moves, assignments, hours := 0, 0, 0.0
	for _, m := range r.Moves {
		moves += m.Moves
	}
	for _, of := range r.records {
		moves -= of.moves
		assignments += len(of.places)
		require.False(t, !of.placed.IsZero() && of.placed.Before(of.arrived), of.id())
	}
	require.Zero(t, moves)
	for _, p := range r.Providers {
		assignments -= p.Assignments
		for name, usage := range p.Resources {
			for hour, amount := range usage.Assigned {
				require.LessOrEqual(t, amount, usage.Granted[hour]+1e-6, "%s at %s in hour %d", name, p.Provider, hour)
			}
		}
		for hour, pods := range p.Resources["pods"].Assigned {
			hours += pods * min(1, sc.Duration.Hours()-float64(hour))
		}
	}
	require.Zero(t, assignments)
	for _, row := range r.Costs {
		hours -= row.Hours["pods"]
	}
	require.InDelta(t, 0, hours, 1e-3, "the costs and the hourly values are of the same time")
}

// oneProvider has a provider for two pods, and another one for events.
const oneProvider = `
start: 2026-03-02T00:00:00Z
duration: 3h
providers:
- id: oslo
  prices: [{currency: EUR, perHour: {cpu: "0.05"}}]
  granted: {cpu: 2, memory: 8Gi, pods: 10}
consumers:
- id: shop
  workloads:
  - {name: web, arrivals: {initial: 3}, lifetime: {mean: 1h}, requests: {cpu: 1, memory: 1Gi}}
`

func TestAPodWaitsUntilAnotherEnds(t *testing.T) {
	r := run(t, oneProvider)
	require.Equal(t, Totals{Arrived: 3, Placed: 3, Ended: 3}, r.Pods)
	first, last := r.records[0], r.records[2]
	require.Equal(t, 3*time.Second+time.Hour, first.ended.Sub(first.arrived), "the start, and its lifetime")
	require.Equal(t, time.Hour+3*time.Second, last.placed.Sub(last.arrived))
	require.Equal(t, Quantiles{P90: 3603, P99: 3603, Longest: 3603}, r.Waited)
	require.Len(t, r.Costs, 1)
	require.InDelta(t, 3*0.05*(1+3./3600), r.Costs[0].Cost["EUR"], 1e-6)
	require.InDelta(t, 1, r.Providers[0].Used[0], 1e-6)
	require.InDelta(t, 0.5, r.Consumers[0].Share[1], 1e-2, "one pod of two cores")
}

// with replaces a part of a scenario.
func with(text string, replacements ...string) string {
	return strings.NewReplacer(replacements...).Replace(text)
}

const torino = `
- id: turin
  granted: {cpu: 2, memory: 8Gi, pods: 10}
consumers:`

func TestEvents(t *testing.T) {
	two := with(oneProvider, "\nconsumers:", torino, "initial: 3", "initial: 2", "requests:", "labels: {app: web}, requests:")
	for name, tc := range map[string]struct {
		scenario string
		moves    []Moves
		places   [][]string
		check    func(t *testing.T, r *Report)
	}{
		"a drain moves one replica after the other": {
			two + "events: [{at: 30m, provider: oslo, action: Drain}]",
			[]Moves{{"provider_drained", 1}},
			[][]string{{"oslo", "turin"}, {"turin"}},
			func(t *testing.T, r *Report) {
				require.InDelta(t, 2, r.Moving.Longest, 0.01, "the time that the pod takes to stop")
				require.Equal(t, time.Hour+2*3*time.Second+2*time.Second, r.records[0].ended.Sub(r.records[0].arrived), "it goes on")
			},
		},
		"a batch pod begins again": {
			with(two, "lifetime:", "restartsOnMove: true, lifetime:") + "events: [{at: 30m, provider: oslo, action: Drain}]",
			[]Moves{{"provider_drained", 1}},
			[][]string{{"oslo", "turin"}, {"turin"}},
			func(t *testing.T, r *Report) {
				require.Equal(t, 90*time.Minute+5*time.Second, r.records[0].ended.Sub(r.records[0].arrived))
			},
		},
		"a pod leaves a provider that fails, after failoverAfter": {
			with(two, "\nproviders:", "\nbroker: {failoverAfter: 2m}\nproviders:") + "events: [{at: 30m, provider: oslo, action: Fail}]",
			[]Moves{{"provider_unreachable", 1}},
			[][]string{{"oslo", "turin"}, {"turin"}},
			func(t *testing.T, r *Report) {
				// Two minutes since the first probe that failed.
				require.Equal(t, []string{"shop", "oslo"}, r.Costs[0].Key)
				require.InDelta(t, 30+2, r.Costs[0].Hours["pods"]*60, 0.3)
			},
		},
		"a short outage moves nothing, and the end is reported after it": {
			two + "events: [{at: 59m50s, provider: oslo, action: Fail}, {at: 60m20s, provider: oslo, action: Recover}]",
			[]Moves{},
			[][]string{{"oslo"}, {"turin"}},
			func(t *testing.T, r *Report) {
				require.Equal(t, time.Hour+20*time.Second, r.records[0].ended.Sub(r.records[0].arrived))
			},
		},
		"a pod with failover Never stays": {
			with(two, "labels:", `annotations: {brokering.liqo.io/failover: Never}, labels:`) +
				"events: [{at: 30m, provider: oslo, action: Fail}]",
			[]Moves{},
			[][]string{{"oslo"}, {"turin"}},
			func(t *testing.T, r *Report) { require.Equal(t, 1, r.Pods.Running, "its end is not known") },
		},
		"a pod stays that fits nowhere else": {
			with(oneProvider, "initial: 3", "initial: 1") + "events: [{at: 30m, provider: oslo, action: Fail}]",
			[]Moves{},
			[][]string{{"oslo"}},
			func(t *testing.T, r *Report) { require.Equal(t, 1, r.Pods.Stayed) },
		},
		"a cordoned provider gets no pods": {
			with(oneProvider, "initial: 3", "initial: 0, perHour: 20, profile: ["+strings.Repeat("1, ", 23)+"1]") +
				"events: [{at: 0s, provider: oslo, action: Cordon}]",
			[]Moves{},
			nil,
			func(t *testing.T, r *Report) {
				require.Zero(t, r.Pods.Placed)
				require.Greater(t, r.Pods.Never, 30)
				require.Equal(t, "cordoned", r.NeverPlaced[0].Reason)
				require.Equal(t, r.Pods.Never, r.NeverPlaced[0].Pods)
			},
		},
		"a provider that grants more takes the waiting pod": {
			oneProvider + "events: [{at: 10m, provider: oslo, granted: {cpu: 3, memory: 8Gi, pods: 10}}]",
			[]Moves{},
			[][]string{{"oslo"}, {"oslo"}, {"oslo"}},
			func(t *testing.T, r *Report) {
				require.InDelta(t, 600, r.Waited.Longest, 1)
				require.InDelta(t, 2+5./6, r.Providers[0].Resources["cpu"].Granted[0], 1e-6)
			},
		},
		"a price applies from its time": {
			with(oneProvider, "initial: 3", "initial: 1") +
				`events: [{at: 30m3s, provider: oslo, prices: [{currency: EUR, perHour: {cpu: "0.15"}}]}]`,
			[]Moves{},
			[][]string{{"oslo"}},
			func(t *testing.T, r *Report) {
				require.InDelta(t, 0.05*(0.5+3./3600)+0.15*0.5, r.Costs[0].Cost["EUR"], 1e-6)
			},
		},
		"an attribute decides from its time on": {
			with(two, "consumers:",
				`policies: [{metadata: {name: eu}, spec: {filter: "provider.attributes['region'] == 'eu'"}}]`+"\nconsumers:") +
				"events: [{at: 20m, provider: turin, attributes: {region: eu}}]",
			[]Moves{},
			[][]string{{"turin"}, {"turin"}},
			func(t *testing.T, r *Report) { require.InDelta(t, 1200, r.Waited.P50, 1) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, tc.scenario)
			require.Equal(t, tc.moves, r.Moves)
			if tc.places != nil {
				var places [][]string
				for _, of := range r.records {
					places = append(places, of.places)
				}
				require.Equal(t, tc.places, places)
			}
			tc.check(t, r)
		})
	}
}

func TestWhyPodsAreNeverPlaced(t *testing.T) {
	for name, tc := range map[string]struct{ replace, by, reason string }{
		"too large":        {"cpu: 1,", "cpu: 3,", "insufficient cpu"},
		"beyond the grant": {"- id: shop", "- id: shop\n  grant: {cpu: 500m, memory: 1Gi}", "beyond the grant of its consumer"},
		"a filter":         {"name: web,", `name: web, annotations: {brokering.liqo.io/filter: "false"},`, "pod filter"},
		"an invalid filter": {
			"name: web,", `name: web, annotations: {brokering.liqo.io/failover: Perhaps},`,
			"invalid criteria: annotation brokering.liqo.io/failover=\"Perhaps\": use Move or Never",
		},
		"its own cluster": {"- id: shop", "- id: oslo", "is the pod's origin"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, with(oneProvider, tc.replace, tc.by))
			require.Equal(t, 3, r.Pods.Never)
			require.Len(t, r.NeverPlaced, 1)
			require.Equal(t, tc.reason, r.NeverPlaced[0].Reason)
			require.True(t, strings.HasSuffix(r.NeverPlaced[0].Example, "/web-1"))
		})
	}
}

func TestAGrantBoundsItsConsumer(t *testing.T) {
	r := run(t, with(oneProvider, "- id: shop", "- id: shop\n  grant: {cpu: 1, memory: 8Gi}"))
	require.InDelta(t, 1, r.Providers[0].Resources["cpu"].Assigned[0], 1e-6)
	require.InDelta(t, 7206, r.Waited.Longest, 1, "one pod after the other")
}

// day has all distributions, and most events.
const day = `
start: 2026-03-02T00:00:00Z
duration: 24h
seed: 7
providers:
- id: oslo
  attributes: {region: eu}
  prices: [{currency: EUR, perHour: {cpu: "0.05", memory: "0.002"}}]
  granted: {cpu: 8, memory: 64Gi, pods: 100}
- id: turin
  count: 2
  attributes: {region: eu}
  prices: [{currency: EUR, perHour: {cpu: "0.03", memory: "0.002"}}]
  granted: {cpu: 4, memory: 64Gi, pods: 100}
  kpis: {uptime: 0.98, latency: 40ms}
  start: {distribution: exponential, mean: 10s}
policies:
- metadata: {name: cheap}
  spec:
    weights: [{name: price, weight: 3}, {name: free, weight: 1}, {name: uptime, weight: 1}]
- metadata: {name: fast}
  spec: {priority: 1, podSelector: {matchLabels: {app: api}}, filter: "provider.kpis.latencyMilliseconds < 100.0"}
consumers:
- id: shop
  workloads:
  - name: web
    arrivals: {perHour: 5, profile: [0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0]}
    lifetime: {distribution: exponential, mean: 2h}
    labels: {app: web}
    requests: {cpu: 500m, memory: 1Gi}
- id: bank
  workloads:
  - name: api
    arrivals: {perHour: 4, initial: 2}
    lifetime: {distribution: lognormal, mean: 30m, sigma: 2}
    labels: {app: api}
    requests: {cpu: 1, memory: 1Gi}
events:
- {at: 6h, provider: turin-1, action: Fail}
- {at: 7h, provider: turin-1, action: Recover}
- {at: 12h, provider: oslo, action: Drain}
- {at: 13h, provider: oslo, action: Undrain}
- {at: 14h, provider: turin-2, prices: [{currency: EUR, perHour: {cpu: "0.3"}}]}
`

func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	text := func(scenario string) string {
		text, err := json.Marshal(run(t, scenario))
		require.NoError(t, err)
		return string(text)
	}
	first := text(day)
	require.Equal(t, first, text(day))
	require.Equal(t, text(congested), text(congested))
	require.NotEqual(t, first, text(with(day, "seed: 7", "seed: 8")))
}

// No decision changes the pods that arrive.
func TestOtherPoliciesHaveTheSamePods(t *testing.T) {
	one, other := run(t, day), run(t, with(day, "name: price, weight: 3", "name: price, weight: 0"))
	require.Equal(t, len(one.records), len(other.records))
	differ := 0
	for i, of := range one.records {
		require.Equal(t, of.id(), other.records[i].id())
		require.Equal(t, of.arrived, other.records[i].arrived)
		if len(of.places) > 0 && len(other.records[i].places) > 0 && of.places[0] != other.records[i].places[0] {
			differ++
		}
	}
	require.Greater(t, differ, 20)
}

func TestUptimeOfAScenarioIsThatOfDecisions(t *testing.T) {
	for share, want := range map[string][]string{"0.98": nil, "0.97": {"turin"}} {
		scenario := with(oneProvider, "  granted:", "  kpis: {uptime: 0.9}\n  granted:", "\nconsumers:", with(torino, "  granted:",
			"  kpis: {uptime: "+share+"}\n  granted:"), "initial: 3", "initial: 1", "\nproviders:",
			"\npolicies: [{metadata: {name: up}, spec: {filter: "+
				"\"provider.kpis.uptime24h < 0.975 && provider.kpis.uptime30d > 0.95\"}}]\nproviders:")
		require.Equal(t, want, run(t, scenario).records[0].places, share)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	sc, err := Parse([]byte(day))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	opts, calls := options(), 0
	opts.Progress = func(done float64) {
		if calls++; done > 0 {
			cancel()
		}
	}
	_, err = Run(ctx, sc, opts)
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, calls)
}

// Two consumers always have pods that wait. By their weights one has three quarters of the places.
func TestWeightsDivideTheCapacity(t *testing.T) {
	workload := "\n  workloads:\n  - {name: job, arrivals: {initial: 200}, requests: {cpu: 100m}, " +
		"lifetime: {mean: 10m, distribution: exponential}}"
	r := run(t, with(oneProvider, "pods: 10", "pods: 1000", "duration: 3h", "duration: 2h", `
- id: shop
  workloads:
  - {name: web, arrivals: {initial: 3}, lifetime: {mean: 1h}, requests: {cpu: 1, memory: 1Gi}}
`, "\n- id: shop"+workload+"\n- id: lab\n  weight: 3"+workload+"\n"))
	require.Positive(t, r.Pods.Waiting, "pods of both wait until the end")
	shares := map[string]float64{}
	for _, c := range r.Consumers {
		shares[c.Consumer] = c.Share[1]
	}
	require.InDelta(t, 0.25, shares["shop"], 0.03)
	require.InDelta(t, 0.75, shares["lab"], 0.03)
}
