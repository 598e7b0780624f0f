package scheduler

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func typesUID(s string) types.UID { return types.UID(s) }

// app returns a pod of application "app".
func app(p *Pod) { p.App = "app" }

// place assigns so many pods of application "app" to a slice.
func place(s *State, virtualNode string, count int) {
	for i := range count {
		s.Assign(Assignment{UID: typesUID(virtualNode + strconv.Itoa(i)), VirtualNode: virtualNode, App: "app"})
	}
}

func TestScores(t *testing.T) {
	half := func(s *State) {
		s.Assign(Assignment{UID: "other", VirtualNode: "q", Requests: Resources{
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
				ready("q", kpis(KPIs{Uptime1h: ptr.To(1.0), Uptime24h: ptr.To(0.7), Uptime7d: ptr.To(0.2)})),
				ready("r", kpis(KPIs{Uptime1h: ptr.To(0.9)})),
				ready("s"),
				ready("t", kpis(KPIs{Uptime24h: ptr.To(math.NaN())})),
			},
			scores: []int{70, 90, 50, 50},
		},
		"uptime can look back further": {
			plugin:    "uptime",
			policy:    &Policy{UptimeWindow: 7 * 24 * time.Hour},
			providers: []Provider{ready("q", kpis(KPIs{Uptime24h: ptr.To(0.7), Uptime7d: ptr.To(0.2)}))},
			scores:    []int{20},
		},
		"latency is halfway at 100 ms": {
			plugin: "latency",
			providers: []Provider{
				ready("q", kpis(KPIs{Latency: ptr.To(time.Duration(0))})),
				ready("r", kpis(KPIs{Latency: ptr.To(100 * time.Millisecond)})),
				ready("s", kpis(KPIs{Latency: ptr.To(300 * time.Millisecond)})),
				ready("t"),
			},
			scores: []int{100, 50, 25, 50},
		},
		"start is halfway at 10 s": {
			plugin: "start",
			providers: []Provider{
				ready("q", kpis(KPIs{PodStartP50: ptr.To(10 * time.Second)})),
				ready("r", kpis(KPIs{PodStartP50: ptr.To(40 * time.Second), PodStartP90: ptr.To(time.Second)})),
			},
			scores: []int{50, 20},
		},
		"failures lower the score": {
			plugin: "failures",
			providers: []Provider{
				ready("q", kpis(KPIs{FailureRate: ptr.To(0.0)})), ready("r", kpis(KPIs{FailureRate: ptr.To(0.3)})),
				ready("s"),
			},
			scores: []int{100, 70, 50},
		},
		"price is relative to the cheapest that fits": {
			plugin: "price",
			providers: []Provider{
				ready("q", attributes("price", "0.10")), ready("r", attributes("price", "0.4")),
				ready("s", attributes("price", "cheap")), ready("t", attributes("price", "-1")),
				ready("u", attributes("price", "0.01"), func(p *Provider) { p.Enabled = false }),
			},
			scores: []int{100, 25, 50, 50},
		},
		"nothing is cheaper than nothing": {
			plugin:    "price",
			providers: []Provider{ready("q", attributes("price", "0")), ready("r", attributes("price", "1"))},
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
				ready("q", labels("zone", "a")), ready("r", labels("zone", "b"), attributes("zone", "a")),
				ready("s", attributes("zone", "b")), ready("t"),
			},
			policy: &Policy{Spread: &Spread{TopologyKey: "zone"}}, pod: asking(app),
			state:  func(s *State) { place(s, "q", 3); place(s, "s", 1); place(s, "t", 9) },
			scores: []int{33, 33, 100, 50},
		},
		"spread counts pods on providers that take no more": {
			plugin: "spread",
			providers: []Provider{
				ready("q", labels("zone", "a"), func(p *Provider) { p.Cordoned = true }),
				ready("r", labels("zone", "a")), ready("s", labels("zone", "b")),
			},
			policy: &Policy{Spread: &Spread{TopologyKey: "zone"}}, pod: asking(app),
			state:  func(s *State) { place(s, "q", 2) },
			scores: []int{0, 100},
		},
		"spread does not count the pod itself": {
			plugin: "spread", providers: []Provider{ready("q"), ready("r")}, pod: asking(app),
			state:  func(s *State) { s.Assign(Assignment{UID: "pod", VirtualNode: "q", App: "app"}) },
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
			policy.Weights = []Weight{{Plugin: tc.plugin, Weight: 7}}
			scores := []int{}
			for _, v := range decide(s, tc.pod, &policy).Verdicts {
				if v.Filter != Passed {
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
	all := make([]Weight, 0, len(Plugins()))
	for _, name := range Plugins() {
		all = append(all, Weight{Plugin: name, Weight: 1})
	}
	d := decide(stateOf(ready("q")), asking(), &Policy{Weights: all})
	for _, s := range d.Verdicts[0].Scores {
		require.NotContains(t, []string{"spread", "close", "expression"}, s.Plugin)
	}
	require.Len(t, d.Verdicts[0].Scores, len(Plugins())-3)
}

func TestTiesAreBrokenByName(t *testing.T) {
	for _, policy := range []*Policy{nil, weighing("free"), {Weights: []Weight{}}, {Weights: []Weight{{"free", 0}}}} {
		d := decide(stateOf(ready("r"), ready("q"), ready("s")), asking(), policy)
		require.Equal(t, "q", d.Provider)
	}
}

func TestValidateWeights(t *testing.T) {
	require.NoError(t, ValidateWeights(nil))
	require.NoError(t, ValidateWeights(DefaultWeights()))
	err := ValidateWeights([]Weight{{"free", -1}, {"fre", 1}, {"uptime", 1}, {"uptime", 0}})
	require.ErrorContains(t, err, `weight -1 of score plugin "free" is negative, use 0 to switch it off`)
	require.ErrorContains(t, err, `score plugin "fre" is unknown, use one of close, expression,`)
	require.ErrorContains(t, err, `score plugin "uptime" has two weights, give it one`)
}
