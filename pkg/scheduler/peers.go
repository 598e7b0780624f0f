package scheduler

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
)

// peers are the pods of a namespace, as the constraints of others see them.
type peers struct {
	// groups are by key.
	groups map[string]*group
	// labelled are the groups with a label and its value.
	labelled map[label]map[*group]struct{}
	// repelling are the groups with an anti-affinity.
	repelling map[*group]struct{}
}

type label struct{ key, value string }

// group has the pods of a namespace that no constraint tells apart: selectors are evaluated once for all of them.
type group struct {
	*constraints.Peer
	key string
	// at has the number of pods by the ID of their provider.
	at map[string]int
}

func newPeers() *peers {
	return &peers{groups: map[string]*group{}, labelled: map[label]map[*group]struct{}{}, repelling: map[*group]struct{}{}}
}

// keyOf returns a text that is the same for the pods that no constraint tells apart.
func keyOf(p *constraints.Peer) string {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		key.WriteString(name + "=" + p.Labels[name] + ",")
	}
	if p.Terminating {
		key.WriteString("terminating")
	}
	for i := range p.AntiAffinity {
		t := &p.AntiAffinity[i]
		key.WriteString("|" + t.Key + "|" + t.Selector.String())
		if _, selectable := t.Selector.Requirements(); !selectable { // As a text it is equal to one that selects all.
			key.WriteString("none")
		}
	}
	return key.String()
}

// addPeer counts a pod at a provider.
func (s *State) addPeer(p *constraints.Peer, provider string) *group {
	of := s.peers[p.Namespace]
	if of == nil {
		of = newPeers()
		s.peers[p.Namespace] = of
	}
	key := keyOf(p)
	g := of.groups[key]
	if g == nil {
		g = &group{Peer: p, key: key, at: map[string]int{}}
		of.add(g)
	}
	g.at[provider]++
	return g
}

// removePeer stops counting a pod; nil is none.
func (s *State) removePeer(g *group, provider string) {
	if g == nil {
		return
	}
	if g.at[provider]--; g.at[provider] == 0 {
		delete(g.at, provider)
	}
	if len(g.at) > 0 {
		return
	}
	of := s.peers[g.Namespace]
	of.remove(g)
	if len(of.groups) == 0 {
		delete(s.peers, g.Namespace)
	}
}

func (p *peers) add(g *group) {
	p.groups[g.key] = g
	for key, value := range g.Labels {
		of := p.labelled[label{key, value}]
		if of == nil {
			of = map[*group]struct{}{}
			p.labelled[label{key, value}] = of
		}
		of[g] = struct{}{}
	}
	if len(g.AntiAffinity) > 0 {
		p.repelling[g] = struct{}{}
	}
}

func (p *peers) remove(g *group) {
	delete(p.groups, g.key)
	for key, value := range g.Labels {
		if delete(p.labelled[label{key, value}], g); len(p.labelled[label{key, value}]) == 0 {
			delete(p.labelled, label{key, value})
		}
	}
	delete(p.repelling, g)
}

// each calls a function with every group that a selector selects.
func (p *peers) each(selector labels.Selector, do func(*group)) {
	if p == nil {
		return
	}
	requirements, selectable := selector.Requirements()
	if !selectable {
		return
	}
	for _, r := range requirements {
		values := r.Values()
		if one := r.Operator() == selection.In || r.Operator() == selection.Equals; one && len(values) == 1 {
			for g := range p.labelled[label{r.Key(), values.UnsortedList()[0]}] {
				if selector.Matches(labels.Set(g.Labels)) {
					do(g)
				}
			}
			return
		}
	}
	for _, g := range p.groups {
		if selector.Matches(labels.Set(g.Labels)) {
			do(g)
		}
	}
}

// copied returns the groups that a decision about a pod reads; nil if there are none.
func (p *peers) copied(pod *Pod) *peers {
	if p == nil || len(p.repelling) == 0 && !pod.Constraints.ReadsPeers() {
		return nil
	}
	same := newPeers()
	add := func(g *group) {
		if same.groups[g.key] == nil {
			same.add(&group{Peer: g.Peer, key: g.key, at: maps.Clone(g.at)})
		}
	}
	for g := range p.repelling {
		add(g)
	}
	for _, selector := range pod.Constraints.Selectors() {
		p.each(selector, add)
	}
	return same
}

// same returns the group that is a copy of one; nil if it was not copied.
func (p *peers) same(of *group) *group {
	if p == nil || of == nil {
		return nil
	}
	return p.groups[of.key]
}
