package scheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
)

const (
	gpu = corev1.ResourceName("nvidia.com/gpu")
	gi  = int64(1) << 30
)

var now = time.Unix(1_700_000_000, 0)

// ready returns a provider that takes pods of namespace "team", with one slice named as itself.
func ready(id string, changes ...func(*Provider)) Provider {
	p := Provider{
		ID: id, Enabled: true, Ready: true,
		Namespaces: sets.New("team"),
		Slices:     []Slice{sliceOf(id, 8000, 16*gi)},
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func sliceOf(virtualNode string, milliCPU, bytes int64) Slice {
	return Slice{
		VirtualNode: virtualNode,
		Granted:     resources.Amounts{corev1.ResourceCPU: milliCPU, corev1.ResourceMemory: bytes},
	}
}

func gpuSliceOf(virtualNode string, milliCPU, bytes, gpus int64) Slice {
	s := sliceOf(virtualNode, milliCPU, bytes)
	s.Granted[gpu] = gpus
	return s
}

func attributes(pairs ...string) func(*Provider) {
	return func(p *Provider) { p.Attributes = mapOf(pairs) }
}

type prices map[corev1.ResourceName]float64

func priced(currency string, of prices) func(*Provider) {
	return func(p *Provider) { p.Prices = price.Lists{{Currency: currency, PerHour: of}} }
}

func perCPU(of float64) prices { return prices{corev1.ResourceCPU: of} }

func requesting(of resources.Amounts) func(*Pod) { return func(p *Pod) { p.Requests = of } }

func labelled(pairs ...string) func(*Provider) {
	return func(p *Provider) { p.Labels = mapOf(pairs) }
}

func mapOf(pairs []string) map[string]string {
	m := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func kpis(k kpi.Values) func(*Provider) { return func(p *Provider) { p.KPIs = k } }

func granted(slices ...Slice) func(*Provider) {
	return func(p *Provider) { p.Slices = slices }
}

// asking returns a pod of namespace "team" that asks for a core and a gibibyte.
func asking(changes ...func(*Pod)) *Pod {
	pod := &Pod{
		UID: "pod", Namespace: "team", Name: "pod",
		Requests: resources.Amounts{corev1.ResourceCPU: 1000, corev1.ResourceMemory: gi, corev1.ResourcePods: 1},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func stateOf(providers ...Provider) *State {
	s := NewState()
	for _, p := range providers {
		s.SetProvider(p)
	}
	return s
}

func decide(s *State, pod *Pod, policy *Policy) *Decision {
	d := s.Decide(now, pod, policy)
	return &d
}

func weighing(plugin string) *Policy {
	return &Policy{Weights: []score.Weight{{Plugin: plugin, Weight: 1}}}
}

func filterOf(t *testing.T, text string) *cel.Program {
	t.Helper()
	p, err := cel.NewFilter(text)
	require.NoError(t, err)
	return p
}

func scoreOf(t *testing.T, text string) *cel.Program {
	t.Helper()
	p, err := cel.NewScore(text)
	require.NoError(t, err)
	return p
}

func share24h(s float64) func(*Provider) { return kpis(kpi.Values{kpi.Uptime24h: s}) }
