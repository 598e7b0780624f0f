package scheduler

import (
	"maps"
	"slices"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Snapshot returns a copy of what a decision about the pod reads. The State can change while the decision is made on it:
// one that evaluates expressions takes milliseconds. Confirm completes that decision.
func (s *State) Snapshot(pod *Pod) *State {
	copied := NewState()
	copied.table = table{names: slices.Clone(s.table.names), number: maps.Clone(s.table.number)}
	loads := make(map[*load]*load)
	loadOf := func(l *load) *load {
		if loads[l] == nil {
			same := *l
			same.assigned, same.ended = slices.Clone(l.assigned), slices.Clone(l.ended)
			loads[l], copied.loads[l.virtualNode] = &same, &same
		}
		return loads[l]
	}
	copied.providers = make([]*provider, len(s.providers))
	for i, p := range s.providers {
		same := *p
		same.slices, same.usable = slices.Clone(p.slices), make([]*load, len(p.usable))
		for k := range same.slices {
			same.slices[k].load = loadOf(same.slices[k].load)
		}
		for k, l := range p.usable {
			same.usable[k] = loadOf(l)
		}
		same.show(&copied.table)
		copied.providers[i] = &same
	}
	if app := s.apps[pod.App]; app != nil {
		copied.apps[pod.App] = make(map[*load]int, len(app))
		for l, count := range app {
			copied.apps[pod.App][loadOf(l)] = count
		}
	}
	if own, assigned := s.assignments[pod.UID]; assigned {
		own.load = loadOf(own.load)
		copied.assignments[pod.UID] = own
	}
	return copied
}

// Confirm completes a decision about the same pod and policy that was made on a Snapshot: it chooses the best of the
// providers that still fit. Verdicts of others that fitted then say why they do not now. Scores stay as they were.
func (s *State) Confirm(now time.Time, pod *Pod, policy *Policy, d *Decision) {
	if d.VirtualNode == "" {
		return
	}
	c := &d.cycle
	c.begin(s, now, pod, policy)
	defer c.end()
	d.Provider, d.VirtualNode, d.Score = "", "", 0
	for {
		var best *verdict.Verdict
		for i := range d.Verdicts {
			if v := &d.Verdicts[i]; v.Filter == verdict.Passed && (best == nil || v.Sum > best.Sum) {
				best = v
			}
		}
		if best == nil {
			return
		}
		now := verdict.Verdict{Provider: best.Provider, Filter: verdict.NothingGranted, Several: best.Several}
		if i, exists := s.find(best.Provider); exists {
			now.Filter = verdict.Passed
			if p := s.providers[i]; c.filterProvider(p, &now) && c.filterSlices(p, &now) {
				best.VirtualNode = now.VirtualNode
				d.Provider, d.VirtualNode, d.Score = best.Provider, best.VirtualNode, best.Total
				return
			}
		}
		*best = now
	}
}
