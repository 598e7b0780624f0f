package scheduler

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/amounts"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
)

// State has the providers and the pods assigned to them. It is not safe for concurrent use, except for calls of methods
// that only read it: Providers, Assigned and Decide.
type State struct {
	table amounts.Table
	// providers are sorted by ID.
	providers []*provider
	// loads has the load of every slice of a provider, and of every assignment.
	loads       map[Place]*load
	assignments map[Holder]assignment
	// apps has, by application, the number of its pods in each load.
	apps map[string]map[*load]int
	// peers has the pods that the constraints of others read, by namespace.
	peers map[string]*peers
	// accounts and consumers are the sums of the assignments by account, and by consumer.
	accounts  map[Account]*taken
	consumers map[string]*taken
}

// load is the total assigned to one VirtualNode, even if the provider does not have it now.
type load struct {
	assigned amounts.Flat
	// claims are nil for most loads. They are replaced, never changed.
	claims *claims
	at     Place
	// ended is the part of assigned that ended pods use.
	ended amounts.Flat
	// assignments and slices (of providers) are reference counts: the load is deleted when both are 0.
	assignments, slices int
}

// assignment is an Assignment as the State keeps it.
type assignment struct {
	load     *load
	app      string
	requests []amounts.Request
	ended    bool
	account  Account
	// peer is the group in peers with which the pod is counted; nil if it is not.
	peer *group
}

// NewState returns a State without providers.
func NewState() *State {
	return &State{
		table:       amounts.NewTable(),
		loads:       make(map[Place]*load),
		assignments: make(map[Holder]assignment),
		apps:        make(map[string]map[*load]int),
		peers:       make(map[string]*peers),
		accounts:    make(map[Account]*taken),
		consumers:   make(map[string]*taken),
	}
}

// SetProvider adds a provider, or replaces the one of that ID. Assignments stay. The State keeps
// the maps and slices of p; the caller does not change them.
func (s *State) SetProvider(p Provider) {
	added := s.newProvider(p)
	i, exists := s.find(p.ID)
	if !exists {
		s.providers = slices.Insert(s.providers, i, added)
		return
	}
	replaced := s.providers[i]
	s.providers[i] = added
	s.forget(replaced)
}

// RemoveProvider removes the provider of that ID, if there is one. Assignments to its slices stay, and count again if
// the provider returns.
func (s *State) RemoveProvider(id string) {
	i, exists := s.find(id)
	if !exists {
		return
	}
	removed := s.providers[i]
	s.providers = slices.Delete(s.providers, i, i+1)
	s.forget(removed)
}

// Providers returns all providers, sorted by ID. They share their maps and slices with the State.
func (s *State) Providers() []Provider {
	all := make([]Provider, len(s.providers))
	for i, p := range s.providers {
		all[i] = p.Provider
	}
	return all
}

// Assign counts a pod against a slice: a reserve for a decision, or an assignment observed. It may be repeated: a new
// call replaces the place and the amounts of the previous one. An assignment to the zero Place is at no slice, and
// counts in its account only.
func (s *State) Assign(a Assignment) {
	holder := a.Holder()
	s.Release(holder)
	for name, amount := range a.Requests {
		if amount > 0 { // A pod may request 0 of any name: the table would grow without bound.
			s.table.Intern(name)
		}
	}
	to := s.load(a.Place)
	kept := assignment{load: to, app: a.App, requests: s.table.Flatten(nil, a.Requests), ended: a.Ended, account: a.Account}
	to.assignments++
	// The counted amounts are kept, so that Release subtracts the same.
	for i := range kept.requests {
		r := &kept.requests[i]
		r.Amount = min(r.Amount, amounts.MaxAmount, math.MaxInt64-to.assigned.Of(r.Number))
	}
	s.count(&kept)
	for _, r := range kept.requests {
		to.assigned = to.assigned.Add(r.Number, r.Amount)
		if kept.ended {
			to.ended = to.ended.Add(r.Number, r.Amount)
		}
	}
	if a.Peer != nil && a.Place != (Place{}) {
		kept.peer = s.addPeer(a.Peer, a.Provider)
	}
	s.assignments[holder] = kept
	if a.App == "" {
		return
	}
	if s.apps[a.App] == nil {
		s.apps[a.App] = make(map[*load]int)
	}
	s.apps[a.App][to]++
}

// SamePeer reports whether the constraints of others see a holder as they see p; nil is not at all.
func (s *State) SamePeer(of Holder, p *constraints.Peer) bool {
	before := s.assignments[of].peer
	if before == nil || p == nil {
		return before == nil && p == nil
	}
	return before.Namespace == p.Namespace && before.key == keyOf(p)
}

// Release stops counting a holder. It does nothing for one that is not counted.
func (s *State) Release(of Holder) {
	kept, exists := s.assignments[of]
	if !exists {
		return
	}
	delete(s.assignments, of)
	s.removePeer(kept.peer, kept.load.at.Provider)
	from := kept.load
	from.assignments--
	for _, r := range kept.requests {
		from.assigned = from.assigned.Add(r.Number, -r.Amount)
		if kept.ended {
			from.ended = from.ended.Add(r.Number, -r.Amount)
		}
	}
	if app := s.apps[kept.app]; app != nil {
		if app[from]--; app[from] == 0 {
			delete(app, from)
		}
		if len(app) == 0 {
			delete(s.apps, kept.app)
		}
	}
	s.drop(from)
	s.discount(&kept)
}

// PlaceOf returns the place where a holder is counted; the zero Place if it is not.
func (s *State) PlaceOf(of Holder) Place {
	if kept, exists := s.assignments[of]; exists {
		return kept.load.at
	}
	return Place{}
}

// Counted returns the amounts counted for a holder, and their place; the zero Place if it is not counted.
func (s *State) Counted(of Holder) (at Place, requests resources.Amounts) {
	kept, exists := s.assignments[of]
	if !exists {
		return Place{}, nil
	}
	requests = make(resources.Amounts, len(kept.requests))
	for i := range kept.requests {
		requests[corev1.ResourceName(kept.requests[i].Name)] = kept.requests[i].Amount
	}
	return kept.load.at, requests
}

// TakesMore reports whether a holder is counted with more of a resource than the amounts have.
func (s *State) TakesMore(of Holder, than resources.Amounts) bool {
	return slices.ContainsFunc(s.assignments[of].requests, func(r amounts.Request) bool {
		return r.Amount > than[corev1.ResourceName(r.Name)]
	})
}

// Assigned returns the total assigned to a VirtualNode, and the number of pods in it.
func (s *State) Assigned(at Place) (resources.Amounts, int) {
	l := s.loads[at]
	if l == nil {
		return resources.Amounts{}, 0
	}
	return s.table.Named(l.assigned), int(l.assigned.Of(amounts.Pods))
}

// Load is the total assigned to one VirtualNode; Ended is the part of it that ended pods use.
type Load struct{ Assigned, Ended resources.Amounts }

// Loads returns the load of each VirtualNode, including those that no provider has.
func (s *State) Loads() map[Place]Load {
	all := make(map[Place]Load, len(s.loads))
	for at, l := range s.loads {
		if at == (Place{}) {
			continue
		}
		all[at] = Load{Assigned: s.table.Named(l.assigned), Ended: s.table.Named(l.ended)}
	}
	return all
}

func (s *State) find(id string) (int, bool) {
	return slices.BinarySearchFunc(s.providers, id, func(p *provider, id string) int {
		return strings.Compare(p.ID, id)
	})
}

// load returns the load of a VirtualNode, a new one if it has none.
func (s *State) load(at Place) *load {
	l := s.loads[at]
	if l == nil {
		l = &load{at: at}
		s.loads[at] = l
	}
	return l
}

// forget deletes the loads that only the removed provider referred to.
func (s *State) forget(gone *provider) {
	for i := range gone.slices {
		l := gone.slices[i].load
		l.slices--
		s.drop(l)
	}
}

func (s *State) drop(l *load) {
	if l.slices == 0 && l.assignments == 0 {
		delete(s.loads, l.at)
	}
}
