package scheduler

import (
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Snapshot returns a copy of the state that a decision about the pod reads. The State can change while the decision is
// made on the copy: a decision that evaluates expressions takes milliseconds. Confirm completes that decision.
func (s *State) Snapshot(pod *Pod) *State {
	copied := &State{
		table: s.table.Clone(), generation: s.generation, loads: make(map[Place]*load, len(s.loads)),
		assignments: make(map[Holder]assignment), apps: make(map[string]map[*load]int),
	}
	// Objects of one kind are allocated together: there are hundreds of them.
	var (
		flats     block[int64]
		slicesOf  block[slice]
		usable    block[*load]
		providers = make([]provider, len(s.providers))
		all       = make([]load, 0, len(s.loads))
	)
	loadOf := func(l *load) *load {
		if same := copied.loads[l.at]; same != nil {
			return same
		}
		all = append(all, *l)
		same := &all[len(all)-1]
		same.assigned, same.ended = flats.clone(l.assigned), flats.clone(l.ended)
		copied.loads[l.at] = same
		return same
	}
	copied.providers = make([]*provider, len(s.providers))
	for i, p := range s.providers {
		same := &providers[i]
		*same = *p
		same.slices, same.usable = slicesOf.clone(p.slices), usable.clone(p.usable)
		for k := range same.slices {
			same.slices[k].load = loadOf(same.slices[k].load)
		}
		for k, l := range p.usable {
			same.usable[k] = loadOf(l)
		}
		same.showAmounts(&copied.table)
		copied.providers[i] = same
	}
	if app := s.apps[pod.App]; app != nil {
		copied.apps[pod.App] = make(map[*load]int, len(app))
		for l, count := range app {
			copied.apps[pod.App][loadOf(l)] = count
		}
	}
	if own, assigned := s.assignments[pod.holder()]; assigned {
		own.load = loadOf(own.load)
		own.account = Account{} // No decision reads the sums of accounts.
		copied.assignments[pod.holder()] = own
	}
	return copied
}

// block is memory for the copies of many small slices.
type block[T any] struct{ free []T }

// clone returns a copy. Appending to it does not overwrite the memory of another copy.
func (b *block[T]) clone(of []T) []T {
	const together = 256
	n := len(of)
	if n > len(b.free) {
		b.free = make([]T, max(n, together))
	}
	copied := b.free[:n:n]
	b.free = b.free[n:]
	copy(copied, of)
	return copied
}

// Confirm completes a decision about the same pod and policy that was made on a Snapshot: it chooses the best of the
// providers that still fit. The verdict of a provider that fitted in the snapshot and does not fit now has the reason.
// Scores are not computed again.
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
