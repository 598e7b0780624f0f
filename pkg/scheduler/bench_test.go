package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
)

// assignedPods are so many in every benchmark, over however many providers.
const assignedPods = 10_000

// BenchmarkDecide measures one decision on one core, by the number of providers and by the features of the policy.
func BenchmarkDecide(b *testing.B) {
	filter, err := cel.NewFilter("provider.attributes['region'] == 'eu' && provider.resources.free['cpu'] > 1.0")
	require.NoError(b, err)
	zones := []score.Weight{
		{Plugin: "expression", Weight: 3},
		{Plugin: "failures", Weight: 2},
		{Plugin: "free", Weight: 3},
		{Plugin: "latency", Weight: 1},
		{Plugin: "price", Weight: 1},
		{Plugin: "spread", Weight: 2},
		{Plugin: "start", Weight: 1},
		{Plugin: "uptime", Weight: 2},
	}
	for _, tc := range []struct {
		name   string
		policy *Policy
	}{
		{"default", nil},
		{"zones", &Policy{Weights: zones, TopologyKey: "zone"}},
		{"cel", &Policy{Filter: filter}},
	} {
		for _, providers := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("policy=%s/providers=%d", tc.name, providers), func(b *testing.B) {
				benchmarkDecide(b, providers, tc.policy)
			})
		}
	}
}

// benchmarkState returns a State with so many providers and assignedPods, and another pod.
func benchmarkState(providers int) (*State, *Pod) {
	s := NewState()
	for i := range providers {
		s.SetProvider(benchmarkProvider(i, providers))
	}
	requests := resources.Amounts{corev1.ResourceCPU: 500, corev1.ResourceMemory: 1 << 30, corev1.ResourcePods: 1}
	assignments := make([]Assignment, assignedPods)
	for i := range assignments {
		id := fmt.Sprintf("p%04d", i%providers)
		assignments[i] = Assignment{
			UID: types.UID(strconv.Itoa(i)), Place: Place{id, id},
			App: "app-" + strconv.Itoa(i%500), Requests: requests,
		}
		s.Assign(assignments[i])
	}
	return s, &Pod{UID: "new", Namespace: "team-a", App: "app-7", Requests: requests}
}

func benchmarkDecide(b *testing.B, providers int, policy *Policy) {
	s, pod := benchmarkState(providers)
	now := time.Unix(0, 0)
	var d Decision
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		d = s.Decide(now, pod, policy)
		if len(took) < cap(took) {
			took = append(took, time.Since(start))
		}
	}
	b.StopTimer()
	require.NotEmpty(b, d.Provider, d.Unschedulable())
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

// BenchmarkSnapshot measures the copy on which a decision with expressions is made, and Confirm.
func BenchmarkSnapshot(b *testing.B) {
	filter, err := cel.NewFilter("provider.attributes['region'] == 'eu' && provider.resources.free['cpu'] > 1.0")
	require.NoError(b, err)
	for _, providers := range []int{100, 1000} {
		b.Run(fmt.Sprintf("providers=%d", providers), func(b *testing.B) {
			s, pod := benchmarkState(providers)
			policy := &Policy{Filter: filter}
			var d Decision
			b.ReportAllocs()
			for b.Loop() {
				d = s.Snapshot(pod).Decide(time.Unix(0, 0), pod, policy)
				s.Confirm(time.Unix(0, 0), pod, policy, &d)
			}
			require.NotEmpty(b, d.Provider, d.Unschedulable())
		})
	}
}

// BenchmarkAssign measures a reserve that moves a pod from one slice to another.
func BenchmarkAssign(b *testing.B) {
	s := NewState()
	s.SetProvider(benchmarkProvider(0, 2))
	s.SetProvider(benchmarkProvider(1, 2))
	a := Assignment{
		UID: "one", Place: Place{"p0000", "p0000"}, App: "app",
		Requests: resources.Amounts{corev1.ResourceCPU: 500, corev1.ResourceMemory: 1 << 30, corev1.ResourcePods: 1},
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		a.VirtualNode = [...]string{"p0000", "p0001"}[i%2]
		s.Assign(a)
	}
}

func benchmarkProvider(i, of int) Provider {
	share := 1 - float64(i%10)/100
	// Twice the requests of 10,000 pods.
	each := int64(2 * assignedPods / of)
	return Provider{
		ID:         fmt.Sprintf("p%04d", i),
		Labels:     map[string]string{"zone": "z" + strconv.Itoa(i%5), "arch": "amd64", "tier": "gold"},
		Attributes: map[string]string{"region": []string{"eu", "us"}[i%2]},
		Prices:     price.Lists{{PerHour: prices{"cpu": float64(1 + i%7)}}},
		Enabled:    true, Ready: true, Namespaces: sets.New("team-a", "team-b", "team-c"),
		KPIs: kpi.Values{kpi.Uptime24h: share, kpi.LatencyMilliseconds: float64(10 + i%50)},
		Slices: []Slice{{
			VirtualNode: fmt.Sprintf("p%04d", i),
			Granted: resources.Amounts{
				corev1.ResourceCPU: each * 500, corev1.ResourceMemory: each << 30, corev1.ResourcePods: each,
			},
		}},
	}
}
