package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

var (
	// drawKPIs leaves some unknown.
	drawKPIs = rapid.Custom(func(t *rapid.T) kpi.Values {
		values := kpi.Values{}
		for _, k := range kpi.All() {
			largest := 1.0
			if k.Unit != "0 to 1" {
				largest = 60_000
			}
			if rapid.Bool().Draw(t, k.Name+" is known") {
				values[k.Name] = rapid.Float64Range(0, largest).Draw(t, k.Name)
			}
		}
		return values
	})
	drawAmounts = rapid.Custom(func(t *rapid.T) resources.Amounts {
		r := resources.Amounts{
			corev1.ResourceCPU:    rapid.Int64Range(0, 8000).Draw(t, "cpu"),
			corev1.ResourceMemory: rapid.Int64Range(0, 16).Draw(t, "memory") * gi,
		}
		for _, name := range []corev1.ResourceName{gpu, "example.com/fpga", corev1.ResourcePods} {
			if rapid.Bool().Draw(t, "has "+string(name)) {
				r[name] = rapid.Int64Range(0, 4).Draw(t, string(name))
			}
		}
		return r
	})
	drawWeights = rapid.Custom(func(t *rapid.T) []score.Weight {
		var weights []score.Weight
		for _, name := range score.Plugins() {
			weights = append(weights, score.Weight{Plugin: name, Weight: rapid.Int32Range(0, 10).Draw(t, name)})
		}
		return weights
	})
)

func drawProvider(t *rapid.T, id string) Provider {
	mostly := func(what string) bool { return rapid.IntRange(0, 9).Draw(t, what) > 0 }
	p := Provider{
		ID: id, Enabled: mostly("enabled"), Ready: mostly("ready"), Cordoned: !mostly("cordoned"),
		Draining: !mostly("draining"), Recovering: !mostly("recovering"), Namespaces: sets.New("team"),
		KPIs:   drawKPIs.Draw(t, "kpis"),
		Labels: map[string]string{"zone": rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "zone")},
		Prices: price.Lists{{PerHour: prices{"cpu": float64(rapid.IntRange(0, 5).Draw(t, "price"))}}},
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "slices") {
		slice := Slice{VirtualNode: fmt.Sprintf("%s-%d", id, i), Granted: drawAmounts.Draw(t, "granted")}
		if !mostly("slice takes pods") {
			slice.Filter = rapid.SampledFrom([]verdict.Filter{
				verdict.ServesAnotherNode, verdict.NameNotUnique, verdict.Terminating, verdict.NotReady,
			}).Draw(t, "filter")
		}
		p.Slices = append(p.Slices, slice)
	}
	return p
}

func drawProviders(t *rapid.T) []Provider {
	var providers []Provider
	for i := range rapid.IntRange(1, 6).Draw(t, "providers") {
		providers = append(providers, drawProvider(t, "p"+strconv.Itoa(i)))
	}
	return providers
}

func drawPod(t *rapid.T, uid string) *Pod {
	return &Pod{
		UID: typesUID(uid), Namespace: "team",
		App:      rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "app"),
		Consumer: rapid.SampledFrom([]string{"", "", "p0"}).Draw(t, "consumer"),
		Requests: drawAmounts.Draw(t, "requests"),
	}
}

func drawPolicy(t *rapid.T) *Policy {
	return &Policy{
		Weights:      drawWeights.Draw(t, "weights"),
		TopologyKey:  rapid.SampledFrom([]string{"", "provider", "zone", "none"}).Draw(t, "key"),
		UptimeWindow: rapid.SampledFrom(append(score.UptimeWindows(), "")).Draw(t, "window"),
	}
}

// drawAssignments assigns pods to the slices of providers, even if they do not fit, and to slices that no provider has.
func drawAssignments(t *rapid.T, providers []Provider) []Assignment {
	places := []Place{{"unknown", "unknown"}}
	for _, p := range providers {
		for _, s := range p.Slices {
			places = append(places, Place{p.ID, s.VirtualNode})
		}
	}
	var assignments []Assignment
	for i := range rapid.IntRange(0, 10).Draw(t, "assignments") {
		assignments = append(assignments, Assignment{
			UID: typesUID("old-" + strconv.Itoa(i)), Place: rapid.SampledFrom(places).Draw(t, "at"),
			App: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "app"), Requests: drawAmounts.Draw(t, "requests"),
		})
	}
	return assignments
}

func filled(providers []Provider, assignments []Assignment) *State {
	s := stateOf(providers...)
	for _, a := range assignments {
		s.Assign(a)
	}
	return s
}

// seen has the observable results of a decision.
type seen struct {
	Provider, VirtualNode, Message, Unschedulable, Short string
	Score                                                int
	Verdicts                                             []verdict.Verdict
}

func see(d *Decision) seen {
	return seen{d.Provider, d.VirtualNode, d.Message(), d.Unschedulable(), d.Short(), d.Score, d.Verdicts}
}

func TestAReserveNeverExceedsAGrant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		providers := drawProviders(t)
		policy := drawPolicy(t)
		s := stateOf(providers...)
		var d Decision
		for i := range rapid.IntRange(1, 40).Draw(t, "pods") {
			pod := drawPod(t, "new-"+strconv.Itoa(i))
			if rapid.IntRange(0, 5).Draw(t, "release") == 0 {
				s.Release(HolderOf(typesUID("new-" + strconv.Itoa(i/2))))
			}
			d = s.Decide(now, pod, policy)
			if d.Provider == "" {
				continue
			}
			s.Assign(Assignment{UID: pod.UID, Place: Place{d.Provider, d.VirtualNode}, App: pod.App, Requests: pod.Requests})
			requireWithinGrants(t, s, providers)
		}
	})
}

func requireWithinGrants(t *rapid.T, s *State, providers []Provider) {
	for _, p := range providers {
		for _, slice := range p.Slices {
			assigned, pods := s.Assigned(Place{p.ID, slice.VirtualNode})
			for name, amount := range assigned {
				limit, limited := slice.Granted[name]
				if limited || name != corev1.ResourcePods {
					require.LessOrEqual(t, amount, limit, "%s of %s", name, slice.VirtualNode)
				}
			}
			require.Equal(t, assigned[corev1.ResourcePods], int64(pods))
		}
	}
}

func TestTheOrderOfProvidersDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		providers := drawProviders(t)
		assignments := drawAssignments(t, providers)
		pod, policy := drawPod(t, "new"), drawPolicy(t)
		want := see(decide(filled(providers, assignments), pod, policy))

		shuffled := rapid.Permutation(providers).Draw(t, "order")
		s := NewState()
		for _, a := range rapid.Permutation(assignments).Draw(t, "assigned in") {
			s.Assign(a)
		}
		for _, p := range shuffled {
			s.SetProvider(Provider{ID: p.ID})
		}
		for _, p := range shuffled {
			s.SetProvider(p)
		}
		policy.Weights = rapid.Permutation(policy.Weights).Draw(t, "weights in")
		require.Equal(t, want, see(decide(s, pod, policy)))
	})
}

func TestAProviderThatFailsAFilterChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		providers := drawProviders(t)
		assignments := drawAssignments(t, providers)
		pod, policy := drawPod(t, "new"), drawPolicy(t)
		without := decide(filled(providers, assignments), pod, policy)

		added := drawProvider(t, rapid.SampledFrom([]string{"a", "p1x", "z"}).Draw(t, "id"))
		switch rapid.IntRange(0, 3).Draw(t, "fails") {
		case 0:
			added.Enabled = false
		case 1:
			added.Ready = false
		case 2:
			added.Namespaces = nil
		case 3:
			added.Slices = nil
		}
		with := decide(filled(append(providers, added), assignments), pod, policy)
		require.Equal(t, without.Provider, with.Provider)
		require.Equal(t, without.VirtualNode, with.VirtualNode)
		require.Equal(t, without.Score, with.Score)
		others := slices.DeleteFunc(with.Verdicts, func(v verdict.Verdict) bool { return v.Provider == added.ID })
		require.Equal(t, without.Verdicts, others)
	})
}

func TestMoreFreeCapacityNeverLowersFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProvider(t, "p")
		p.Enabled, p.Ready, p.Cordoned, p.Draining, p.Recovering = true, true, false, false, false
		assignments := drawAssignments(t, []Provider{p})
		pod := drawPod(t, "new")
		pod.Consumer = ""
		roomy := resources.Amounts{}
		for name, amount := range pod.Requests {
			roomy[name] = amount + rapid.Int64Range(1, 1<<40).Draw(t, "room")
		}
		p.Slices = append(p.Slices, Slice{VirtualNode: "roomy", Granted: roomy})
		before := decide(filled([]Provider{p}, assignments), pod, weighing("free"))
		require.Equal(t, "p", before.Provider)

		if rapid.Bool().Draw(t, "release") && len(assignments) > 0 {
			assignments = assignments[:len(assignments)-1]
		} else {
			p.Slices = slices.Clone(p.Slices)
			grown := &p.Slices[rapid.IntRange(0, len(p.Slices)-1).Draw(t, "slice")]
			more := resources.Amounts{}
			for name, amount := range grown.Granted {
				more[name] = amount + rapid.Int64Range(0, 1<<40).Draw(t, "more "+string(name))
			}
			grown.Granted = more
		}
		after := decide(filled([]Provider{p}, assignments), pod, weighing("free"))
		require.Equal(t, "p", after.Provider)
		require.GreaterOrEqual(t, after.Verdicts[0].Scores[0].Points, before.Verdicts[0].Scores[0].Points)
	})
}

func TestTheSameInputGivesTheSameOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		providers := drawProviders(t)
		s := filled(providers, drawAssignments(t, providers))
		pod, policy := drawPod(t, "new"), drawPolicy(t)
		first := decide(s, pod, policy)
		decide(s, drawPod(t, "another"), drawPolicy(t))
		require.Equal(t, see(first), see(decide(s, pod, policy)))
	})
}

func TestContributionsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		providers := drawProviders(t)
		s := filled(providers, drawAssignments(t, providers))
		d := decide(s, drawPod(t, "new"), drawPolicy(t))
		for _, v := range d.Verdicts {
			total := 0
			for _, c := range v.Contributions() {
				require.GreaterOrEqual(t, c.Points, 0)
				total += c.Points
			}
			require.Equal(t, v.Total, total)
			require.LessOrEqual(t, v.Total, 100)
			require.LessOrEqual(t, v.Total, d.Score)
			if v.Provider == d.Provider {
				require.Equal(t, d.Score, v.Total)
			}
		}
	})
}

func TestDecisionsDoNotWriteTheState(t *testing.T) {
	s := stateOf(ready("q", labelled("zone", "a")), ready("r"))
	place(s, "r", 2)
	policy := &Policy{
		Filter: filterOf(t, "provider.resources.free.size() > 1"), TopologyKey: "zone",
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 20 {
				s.Decide(now, asking(app, func(p *Pod) { p.Requests[gpu+"s"] = 0 }), policy)
			}
		})
	}
	wait.Wait()
}

func TestADecisionOnASnapshotIsThatOfTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		providers := drawProviders(t)
		assignments := drawAssignments(t, providers)
		pod, policy := drawPod(t, "new"), drawPolicy(t)
		s := filled(providers, assignments)
		if len(assignments) > 0 && rapid.Bool().Draw(t, "assigned before") {
			pod.UID = assignments[0].UID
		}
		want := see(decide(s, pod, policy))
		var d Decision
		snapshot := s.Snapshot(pod)
		d = snapshot.Decide(now, pod, policy)
		require.Equal(t, want, see(&d))
		s.Confirm(now, pod, policy, &d)
		require.Equal(t, want, see(&d))

		// Changes of the state after the snapshot are not in the snapshot; Confirm sees them.
		for _, other := range drawAssignments(t, providers) {
			other.UID = "other-" + other.UID
			s.Assign(other)
		}
		for _, p := range providers {
			if rapid.IntRange(0, 4).Draw(t, "removed") == 0 {
				s.RemoveProvider(p.ID)
			}
		}
		require.Equal(t, want, see(decide(snapshot, pod, policy)))
		fits := map[string]bool{}
		for _, v := range decide(s, pod, policy).Verdicts {
			fits[v.Provider] = v.Filter == verdict.Passed
		}
		s.Confirm(now, pod, policy, &d)
		best := ""
		for _, v := range d.Verdicts {
			require.False(t, v.Filter == verdict.Passed && d.VirtualNode == "", "one that fits is chosen")
			if v.Provider == d.Provider {
				best = v.VirtualNode
			}
		}
		require.Equal(t, d.VirtualNode, best)
		require.True(t, d.VirtualNode == "" || fits[d.Provider])
		require.True(t, d.VirtualNode != "" || !fits[want.Provider], "the one that was chosen still fits")
		require.True(t, !fits[want.Provider] || d.Provider == want.Provider)
	})
}

// The next best is chosen when the best has been taken meanwhile.
func TestConfirmChoosesAnew(t *testing.T) {
	s := stateOf(ready("a"), ready("b", granted(sliceOf("b", 16000, 32*gi))), ready("c", granted(sliceOf("c", 12000, 24*gi))))
	pod := asking()
	pod.Expression = filterOf(t, "true")
	d := s.Snapshot(pod).Decide(now, pod, nil)
	require.Equal(t, "b", d.Provider)
	s.Assign(Assignment{UID: "x", Place: Place{"b", "b"}, Requests: resources.Amounts{corev1.ResourceCPU: 16000}})
	s.Confirm(now, pod, nil, &d)
	require.Equal(t, "c", d.Provider)
	require.Equal(t, "c", d.VirtualNode)
	require.Equal(t, verdict.Insufficient, d.Verdicts[1].Filter)
	s.RemoveProvider("c")
	s.RemoveProvider("a")
	s.Confirm(now, pod, nil, &d)
	require.Empty(t, d.Provider)
	require.Empty(t, d.VirtualNode)
}
