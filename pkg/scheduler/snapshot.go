package scheduler

import (
	"slices"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Snapshot returns a copy of the state that a decision about the pod reads. The State can change while the decision is
// made on the copy: a decision that evaluates expressions takes milliseconds. Confirm completes that decision.
func (s *State) Snapshot(pod *Pod) *State {
	copied := &State{
		table: s.table.Clone(), loads: make(map[Place]*load, len(s.loads)),
		assignments: make(map[Holder]assignment), apps: make(map[string]map[*load]int),
	}
	loadOf := func(l *load) *load {
		if same := copied.loads[l.at]; same != nil {
			return same
		}
		same := *l
		same.assigned, same.ended = slices.Clone(l.assigned), slices.Clone(l.ended)
		copied.loads[l.at] = &same
		return &same
	}
	copied.providers = make([]*provider, len(s.providers))
	for i, p := range s.providers {
		same := *p
		same.slices, same.usable = slices.Clone(p.slices), slices.Clone(p.usable)
		for k := range same.slices {
			same.slices[k].load = loadOf(same.slices[k].load)
		}
		for k, l := range p.usable {
			same.usable[k] = loadOf(l)
		}
		same.showAmounts(&copied.table)
		copied.providers[i] = &same
	}
	if app := s.apps[pod.App]; app != nil {
		copied.apps[pod.App] = make(map[*load]int, len(app))
		for l, count := range app {
			copied.apps[pod.App][loadOf(l)] = count
		}
	}
	if of := s.peers[pod.Namespace].copied(pod); of != nil {
		copied.peers = map[string]*peers{pod.Namespace: of}
	}
	// A decision about another use of the pod does not count the pod itself either.
	for _, holder := range []Holder{pod.holder(), HolderOf(pod.UID)} {
		if own, assigned := s.assignments[holder]; assigned {
			own.load = loadOf(own.load)
			own.account = Account{} // No decision reads the sums of accounts.
			own.peer = copied.peers[pod.Namespace].same(own.peer)
			copied.assignments[holder] = own
		}
	}
	return copied
}

// Confirm completes a decision about the same pod and policy that was made on a Snapshot: it chooses the best of the
// providers that still fit. The verdict of a provider that fitted in the snapshot and does not fit now has the reason.
// Scores are not computed again.
func (s *State) Confirm(now time.Time, pod *Pod, policy *Policy, d *Decision) {
	if d.VirtualNode == "" {
		return
	}
	c := s.newCycle(now, pod, policy)
	c.constraints.accepted = d.accepted
	c.beginConstraints(s)
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
			if c.filter(s.providers[i], &now) {
				best.VirtualNode = now.VirtualNode
				d.Provider, d.VirtualNode, d.Score = best.Provider, best.VirtualNode, best.Total
				return
			}
		}
		*best = now
	}
}
