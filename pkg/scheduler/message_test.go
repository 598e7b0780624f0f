package scheduler

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

func TestMessages(t *testing.T) {
	disabled := func(p *Provider) { p.Enabled = false }
	policy := &Policy{Weights: []score.Weight{{Plugin: "price", Weight: 1}, {Plugin: "uptime", Weight: 2}}}
	for name, tc := range map[string]struct {
		providers                     []Provider
		message, unschedulable, short string
	}{
		"nothing is known": {
			message: "0/0 provider clusters fit", unschedulable: "0/0 provider clusters fit",
		},
		"the only provider": {
			providers:     []Provider{ready("q", share24h(0.9))},
			message:       "Assigned to provider q: score 77 (uptime 60, price 17); no other fits",
			unschedulable: "1/1 provider clusters fit",
			short:         "q 77: uptime 60, price 17",
		},
		"one more, and one filtered": {
			providers: []Provider{ready("q", disabled), ready("r", share24h(0)), ready("s", share24h(1))},
			message: "Assigned to provider s: score 83 (uptime 66, price 17); " +
				"1 other fits, 1 filtered: disabled",
			unschedulable: "2/3 provider clusters fit: 1 disabled",
			short:         "s 83: uptime 66, price 17",
		},
		"two more, and several filtered": {
			providers: []Provider{
				ready("q", disabled), ready("r", disabled), ready("s", granted(sliceOf("s", 1, gi))),
				ready("t", share24h(0), priced("", perCPU(1))), ready("u", share24h(0), priced("", perCPU(2))),
				ready("v", share24h(0), priced("", perCPU(2))),
			},
			message: "Assigned to provider t: score 33 (price 33, uptime 0); " +
				"2 others fit, 3 filtered: 2 disabled, 1 insufficient cpu",
			unschedulable: "3/6 provider clusters fit: 2 disabled, 1 insufficient cpu",
			short:         "t 33: price 33",
		},
		"none fits": {
			providers: []Provider{
				ready("q", disabled), ready("r", granted(sliceOf("r", 1, gi))), ready("s", granted(sliceOf("s", 1, gi))),
			},
			message:       "0/3 provider clusters fit: 2 insufficient cpu, 1 disabled",
			unschedulable: "0/3 provider clusters fit: 2 insufficient cpu, 1 disabled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(stateOf(tc.providers...), asking(), policy)
			require.Equal(t, tc.message, d.Message())
			require.Equal(t, tc.unschedulable, d.Unschedulable())
			require.Equal(t, tc.short, d.Short())
		})
	}
}

func TestTheMessageOfAPodThatWaitsHasNoCounts(t *testing.T) {
	disabled := func(p *Provider) { p.Enabled = false }
	for message, providers := range map[string][]Provider{
		"no provider clusters available":     nil,
		"no provider cluster fits: disabled": {ready("q", disabled), ready("r", disabled)},
		"no provider cluster fits: disabled, insufficient cpu": {
			ready("q", granted(sliceOf("q", 1, gi))), ready("r", disabled), ready("s", granted(sliceOf("s", 1, gi))),
		},
	} {
		d := decide(stateOf(providers...), asking(), nil)
		require.Equal(t, message, d.Waiting())
	}
}

func TestMessageWithoutWeights(t *testing.T) {
	d := decide(stateOf(ready("q")), asking(), &Policy{Weights: []score.Weight{}})
	require.Equal(t, "Assigned to provider q: score 0; no other fits", d.Message())
	require.Equal(t, "Would be assigned to provider q: score 0; no other fits", d.Prospect())
	require.Equal(t, "q 0", d.Short())
}

func TestADecisionForgetsTheOneBefore(t *testing.T) {
	s := stateOf(ready("q"), ready("r"))
	d := s.Decide(now, asking(), &Policy{Filter: filterOf(t, "provider.labels['x'] == 'y'")})
	require.Error(t, d.Err)
	d = s.Decide(now, asking(), nil)
	require.NoError(t, d.Err)
	require.Equal(t, "q", d.Provider)
	s.RemoveProvider("q")
	d = s.Decide(now, asking(func(p *Pod) { p.Requests[corev1.ResourceCPU] = 9000 }), nil)
	require.Empty(t, d.Provider)
	require.Empty(t, d.VirtualNode)
	require.Zero(t, d.Score)
	require.Equal(t, []verdict.Verdict{{Provider: "r", Filter: verdict.Insufficient, Detail: "cpu"}}, d.Verdicts)
}
