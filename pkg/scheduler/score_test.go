package scheduler

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

func typesUID(s string) types.UID { return types.UID(s) }

// app returns a pod of application "app".
func app(p *Pod) { p.App = "app" }

// place assigns so many pods of application "app" to a slice.
func place(s *State, virtualNode string, count int) {
	for i := range count {
		s.Assign(Assignment{UID: typesUID(virtualNode + strconv.Itoa(i)), Place: Place{virtualNode, virtualNode}, App: "app"})
	}
}

func TestScores(t *testing.T) {
	half := func(s *State) {
		s.Assign(Assignment{UID: "other", Place: Place{"q", "q"}, Requests: resources.Amounts{
			corev1.ResourceCPU: 3000, corev1.ResourceMemory: 7 * gi,
		}})
	}
	for name, tc := range map[string]struct {
		plugin    string
		providers []Provider
		state     func(*State)
		pod       *Pod
		policy    *Policy
		scores    []int
	}{
		"free is the mean share of cpu and memory left after placing": {
			plugin: "free", providers: []Provider{ready("q"), ready("r")}, state: half, scores: []int{50, 91},
		},
		"free counts the GPUs of a pod that asks for one": {
			plugin:    "free",
			providers: []Provider{ready("q", granted(gpuSliceOf("q", 2000, 2*gi, 4)))},
			pod:       asking(func(p *Pod) { p.Requests[gpu] = 4 }),
			scores:    []int{33},
		},
		"free counts the slices of a provider together": {
			plugin:    "free",
			providers: []Provider{ready("q", granted(sliceOf("q1", 2000, 2*gi), sliceOf("q2", 2000, 2*gi)))},
			scores:    []int{75},
		},
		"packed is the contrary of free": {
			plugin: "packed", providers: []Provider{ready("q"), ready("r")}, state: half, scores: []int{50, 9},
		},
		"uptime is the last day's": {
			plugin: "uptime",
			providers: []Provider{
				ready("q", kpis(kpi.Values{kpi.Uptime1h: 1, kpi.Uptime24h: 0.7, kpi.Uptime7d: 0.2})),
				ready("r", kpis(kpi.Values{kpi.Uptime1h: 0.9})),
				ready("s"),
				ready("t", kpis(kpi.Values{kpi.Uptime24h: math.NaN()})),
			},
			scores: []int{70, 90, 50, 50},
		},
		"uptime can look back further": {
			plugin:    "uptime",
			policy:    &Policy{UptimeWindow: "7d"},
			providers: []Provider{ready("q", kpis(kpi.Values{kpi.Uptime24h: 0.7, kpi.Uptime7d: 0.2}))},
			scores:    []int{20},
		},
		"or be of the last hour": {
			plugin:    "uptime",
			policy:    &Policy{UptimeWindow: "1h"},
			providers: []Provider{ready("q", kpis(kpi.Values{kpi.Uptime1h: 0.3, kpi.Uptime24h: 0.7}))},
			scores:    []int{30},
		},
		"a window that is unknown falls back to a shorter one": {
			plugin:    "uptime",
			policy:    &Policy{UptimeWindow: "30d"},
			providers: []Provider{ready("q", kpis(kpi.Values{kpi.Uptime1h: 1, kpi.Uptime24h: 0.7}))},
			scores:    []int{70},
		},
		"latency is halfway at 100 ms": {
			plugin: "latency",
			providers: []Provider{
				ready("q", kpis(kpi.Values{kpi.LatencyMilliseconds: 0})),
				ready("r", kpis(kpi.Values{kpi.LatencyMilliseconds: 100})),
				ready("s", kpis(kpi.Values{kpi.LatencyMilliseconds: 300})),
				ready("t"),
			},
			scores: []int{100, 50, 25, 50},
		},
		"start is halfway at 10 s": {
			plugin: "start",
			providers: []Provider{
				ready("q", kpis(kpi.Values{kpi.PodStartP50Seconds: 10})),
				ready("r", kpis(kpi.Values{kpi.PodStartP50Seconds: 40, kpi.PodStartP90Seconds: 1})),
			},
			scores: []int{50, 20},
		},
		"failures lower the score": {
			plugin: "failures",
			providers: []Provider{
				ready("q", kpis(kpi.Values{kpi.FailureRate: 0})), ready("r", kpis(kpi.Values{kpi.FailureRate: 0.3})),
				ready("s"),
			},
			scores: []int{100, 70, 50},
		},
		"price is relative to the cheapest that fits": {
			plugin: "price",
			providers: []Provider{
				ready("q", priced("", perCPU(0.1))), ready("r", priced("", perCPU(0.4))), ready("s"),
				ready("t", priced("", perCPU(0.01)), func(p *Provider) { p.Enabled = false }),
			},
			scores: []int{100, 25, 50},
		},
		"the price is the pod's": {
			plugin: "price",
			providers: []Provider{
				ready("q", priced("EUR", prices{"cpu": 1, "memory": 8})), ready("r", priced("EUR", prices{"cpu": 2, "memory": 1})),
			},
			pod:    asking(),
			scores: []int{33, 100},
		},
		"a pod without requests is compared by some": {
			plugin: "price",
			providers: []Provider{
				ready("q", priced("EUR", prices{"cpu": 1})), ready("r", priced("EUR", prices{"cpu": 4})),
				ready("s", priced("EUR", prices{"memory": 0.128})),
			},
			pod:    asking(requesting(resources.Amounts{"pods": 1})),
			scores: []int{25, 6, 100},
		},
		"another currency than that of most is unknown": {
			plugin: "price",
			providers: []Provider{
				ready("q", priced("EUR", perCPU(2))), ready("r", priced("USD", perCPU(1))), ready("s", priced("EUR", perCPU(4))),
			},
			scores: []int{100, 50, 50},
		},
		"nothing is cheaper than nothing": {
			plugin:    "price",
			providers: []Provider{ready("q", priced("", perCPU(0))), ready("r", priced("", perCPU(1)))},
			scores:    []int{100, 0},
		},
		"spread prefers the provider with fewer pods of the application": {
			plugin: "spread", providers: []Provider{ready("q"), ready("r"), ready("s")}, pod: asking(app),
			state:  func(s *State) { place(s, "q", 4); place(s, "r", 1) },
			scores: []int{0, 75, 100},
		},
		"spread over a label or attribute counts its providers together": {
			plugin: "spread",
			providers: []Provider{
				ready("q", labelled("zone", "a")), ready("r", labelled("zone", "b"), attributes("zone", "a")),
				ready("s", attributes("zone", "b")), ready("t"),
			},
			policy: &Policy{TopologyKey: "zone"}, pod: asking(app),
			state:  func(s *State) { place(s, "q", 3); place(s, "s", 1); place(s, "t", 9) },
			scores: []int{33, 33, 100, 50},
		},
		"spread counts pods on providers that take no more": {
			plugin: "spread",
			providers: []Provider{
				ready("q", labelled("zone", "a"), func(p *Provider) { p.Cordoned = true }),
				ready("r", labelled("zone", "a")), ready("s", labelled("zone", "b")),
			},
			policy: &Policy{TopologyKey: "zone"}, pod: asking(app),
			state:  func(s *State) { place(s, "q", 2) },
			scores: []int{0, 100},
		},
		"spread does not count the pod itself": {
			plugin: "spread", providers: []Provider{ready("q"), ready("r")}, pod: asking(app),
			state:  func(s *State) { s.Assign(Assignment{UID: "pod", Place: Place{"q", "q"}, App: "app"}) },
			scores: []int{100, 100},
		},
		"close prefers the provider with more pods of the application": {
			plugin: "close", providers: []Provider{ready("q"), ready("r"), ready("s")}, pod: asking(app),
			state:  func(s *State) { place(s, "q", 4); place(s, "r", 1) },
			scores: []int{100, 25, 0},
		},
		"expression is the policy's own": {
			plugin: "expression",
			providers: []Provider{
				ready("q", attributes("stars", "3")), ready("r", attributes("stars", "9")),
				ready("s", attributes("stars", "-1")),
			},
			policy: &Policy{Score: scoreOf(t, "20 * int(provider.attributes['stars'])")},
			scores: []int{60, 100, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.providers...)
			if tc.state != nil {
				tc.state(s)
			}
			if tc.pod == nil {
				tc.pod = asking()
			}
			policy := Policy{}
			if tc.policy != nil {
				policy = *tc.policy
			}
			policy.Weights = []score.Weight{{Plugin: tc.plugin, Weight: 7}}
			scores := []int{}
			for _, v := range decide(s, tc.pod, &policy).Verdicts {
				if v.Filter != verdict.Passed {
					continue
				}
				require.Len(t, v.Scores, 1)
				require.Equal(t, tc.plugin, v.Scores[0].Plugin)
				require.Equal(t, v.Scores[0].Score, v.Total)
				scores = append(scores, v.Total)
			}
			require.Equal(t, tc.scores, scores)
		})
	}
}

func TestPluginsWithoutAnythingToWeigh(t *testing.T) {
	all := make([]score.Weight, 0, len(score.Plugins()))
	for _, name := range score.Plugins() {
		all = append(all, score.Weight{Plugin: name, Weight: 1})
	}
	d := decide(stateOf(ready("q")), asking(), &Policy{Weights: all})
	for _, s := range d.Verdicts[0].Scores {
		require.NotContains(t, []string{"spread", "close", "expression", "preferred"}, s.Plugin)
	}
	require.Len(t, d.Verdicts[0].Scores, len(score.Plugins())-4)
}

func TestTiesAreBrokenByName(t *testing.T) {
	for _, policy := range []*Policy{
		nil, weighing("free"), {Weights: []score.Weight{}}, {Weights: []score.Weight{{Plugin: "free", Weight: 0}}},
	} {
		d := decide(stateOf(ready("r"), ready("q"), ready("s")), asking(), policy)
		require.Equal(t, "q", d.Provider)
	}
}
