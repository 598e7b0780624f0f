package scheduler

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// peer is a pod at a provider.
type peer struct {
	*constraints.Peer
	provider string
}

// peers are the pods of a namespace.
type peers struct {
	pods map[Holder]peer
	// repelling is how many of them have an anti-affinity.
	repelling int
}

func (s *State) addPeer(h Holder, p *constraints.Peer, provider string) {
	of := s.peers[p.Namespace]
	if of == nil {
		of = &peers{pods: map[Holder]peer{}}
		s.peers[p.Namespace] = of
	}
	of.pods[h] = peer{Peer: p, provider: provider}
	if len(p.AntiAffinity) > 0 {
		of.repelling++
	}
}

func (s *State) removePeer(h Holder, namespace string) {
	of := s.peers[namespace]
	if of == nil {
		return
	}
	if len(of.pods[h].AntiAffinity) > 0 {
		of.repelling--
	}
	if delete(of.pods, h); len(of.pods) == 0 {
		delete(s.peers, namespace)
	}
}

// peersRead returns the pods that a pod's constraints read, or that may keep it away; nil if there are none.
func (s *State) peersRead(pod *Pod) *peers {
	of := s.peers[pod.Namespace]
	if of == nil || of.repelling == 0 && !pod.Constraints.ReadsPeers() {
		return nil
	}
	return of
}

// constrained has the pod's constraints, and the pods that they read, during one decision.
type constrained struct {
	// required are the alternatives of the pod's node selector and affinity, without those about keys that no provider
	// has.
	required []constraints.AnyOf
	spreads  []spread
	// with and without are the required affinities to other pods, and weighted the preferred ones.
	with, without []selected
	weighted      []weighted
	// first means that the pod is the first of the group that its affinity selects.
	first bool
	// kept is, by topology key, the domains from which the anti-affinity of other pods keeps the pod away.
	kept map[string]map[string]bool
}

// spread is a topology spread constraint with its domains.
type spread struct {
	*constraints.Spread
	// counts has the selected pods of each domain; fewest and most are the least and the largest of them.
	counts       map[string]int
	fewest, most int
	// self is 1 if the constraint selects the pod itself.
	self int
}

// selected is a term of affinity with the number of pods that it selects, by domain.
type selected struct {
	*constraints.Term
	in map[string]int
}

// weighted is a preferred term.
type weighted struct {
	selected
	weight int64
}

// beginConstraints counts the pods that the pod's constraints select, and those that keep it away. As with
// kube-scheduler, only providers that the pod may use are domains: those that pass the filters of a provider and the
// required node affinity.
func (c *cycle) beginConstraints(s *State) {
	of := s.peersRead(c.pod)
	if of != nil && of.repelling > 0 {
		c.constraints.kept = c.keptAway(s, of)
	}
	own := c.pod.Constraints
	if own == nil {
		return
	}
	for _, any := range own.Required {
		if known := s.known(any); len(known) > 0 {
			c.constraints.required = append(c.constraints.required, known)
		}
	}
	if !own.ReadsPeers() {
		return
	}
	at := c.countable(s, of)
	for i := range own.Spread {
		if s.hasKey(own.Spread[i].Key) {
			c.constraints.spreads = append(c.constraints.spreads, spread{Spread: &own.Spread[i]})
		}
	}
	c.countSpreads(s, at)
	c.countAffinity(s, at)
	for i := range own.AntiAffinity {
		if t := &own.AntiAffinity[i]; s.hasKey(t.Key) {
			c.constraints.without = append(c.constraints.without, selected{t, countOf(t.Key, at, t.Selects)})
		}
	}
	for i := range own.PreferredPeers {
		if t := &own.PreferredPeers[i]; s.hasKey(t.Key) {
			c.constraints.weighted = append(c.constraints.weighted, weighted{selected{&t.Term, countOf(t.Key, at, t.Selects)}, t.Weight})
		}
	}
}

// countAffinity counts the pods that all terms of the pod's affinity select. If there is none, a pod that selects
// itself is the first of its group (satisfyPodAffinity in kube-scheduler's plugin InterPodAffinity).
func (c *cycle) countAffinity(s *State, at peersAt) {
	own := c.pod.Constraints.Affinity
	all := func(of labels.Set) bool {
		return !slices.ContainsFunc(own, func(t constraints.Term) bool { return !t.Selects(of) })
	}
	any := false
	for i := range own {
		if t := &own[i]; s.hasKey(t.Key) {
			found := selected{t, countOf(t.Key, at, all)}
			any = any || len(found.in) > 0
			c.constraints.with = append(c.constraints.with, found)
		}
	}
	c.constraints.first = !any && all(c.pod.Labels)
}

// peersAt are the pods of a namespace by provider.
type peersAt map[*provider][]*constraints.Peer

// countable returns the pods of the namespace, without the pod itself.
func (c *cycle) countable(s *State, of *peers) peersAt {
	at := make(peersAt, len(s.providers))
	if of == nil {
		return at
	}
	for holder, p := range of.pods {
		if holder.UID == c.pod.UID {
			continue
		}
		if i, exists := s.find(p.provider); exists {
			at[s.providers[i]] = append(at[s.providers[i]], p.Peer)
		}
	}
	return at
}

// keptAway returns the domains from which other pods keep the pod away.
func (c *cycle) keptAway(s *State, of *peers) (kept map[string]map[string]bool) {
	for holder, p := range of.pods {
		if holder.UID == c.pod.UID {
			continue
		}
		for i := range p.AntiAffinity {
			t := &p.AntiAffinity[i]
			at, exists := s.find(p.provider)
			if !exists || !t.Selects(c.pod.Labels) {
				continue
			}
			domain, has := s.providers[at].domain(t.Key)
			if !has {
				continue
			}
			if kept == nil {
				kept = map[string]map[string]bool{}
			}
			if kept[t.Key] == nil {
				kept[t.Key] = map[string]bool{}
			}
			kept[t.Key][domain] = true
		}
	}
	return kept
}

// countSpreads counts the pods of each domain. A provider without a domain of each required spread is none.
func (c *cycle) countSpreads(s *State, at peersAt) {
	for i := range c.constraints.spreads {
		sp := &c.constraints.spreads[i]
		sp.counts = map[string]int{}
		if sp.Selector.Matches(labels.Set(c.pod.Labels)) {
			sp.self = 1
		}
		for _, p := range s.providers {
			var ignored verdict.Verdict
			if !c.filterProvider(p, &ignored) || !sp.AllProviders && c.unmet(p) != nil || !c.inAllDomains(p, sp.Required) {
				continue
			}
			domain, has := p.domain(sp.Key)
			if !has {
				continue
			}
			count := 0
			for _, other := range at[p] {
				// An empty selector selects the pod itself, but counts no pods (countPodsMatchSelector in
				// kube-scheduler's plugin PodTopologySpread).
				if !sp.Selector.Empty() && !other.Terminating && sp.Selector.Matches(labels.Set(other.Labels)) {
					count++
				}
			}
			sp.counts[domain] += count
		}
		sp.fewest = math.MaxInt
		for _, count := range sp.counts {
			sp.fewest, sp.most = min(sp.fewest, count), max(sp.most, count)
		}
		if len(sp.counts) < sp.MinDomains {
			sp.fewest = 0
		}
	}
}

// inAllDomains reports whether a provider has a domain of every spread that is required, or of every other one.
func (c *cycle) inAllDomains(p *provider, required bool) bool {
	return !slices.ContainsFunc(c.constraints.spreads, func(sp spread) bool {
		_, has := p.domain(sp.Key)
		return sp.Required == required && !has
	})
}

// countOf counts the pods that are selected, by domain. Unlike in spreads, they count at every provider.
func countOf(key string, at peersAt, selects func(labels.Set) bool) map[string]int {
	in := map[string]int{}
	for p, others := range at {
		domain, has := p.domain(key)
		for _, other := range others {
			if has && selects(other.Labels) {
				in[domain]++
			}
		}
	}
	return in
}

// filterConstraints reports whether the provider meets the pod's required constraints, and no other pod keeps it away.
func (c *cycle) filterConstraints(p *provider, v *verdict.Verdict) bool {
	if r := c.unmet(p); r != nil {
		v.Filter, v.Detail = verdict.NodeAffinity, *r
		return false
	}
	for i := range c.constraints.spreads {
		if sp := &c.constraints.spreads[i]; sp.Required {
			if reason := sp.exceeded(p); reason != "" {
				v.Filter, v.Detail = verdict.TopologySpread, reason
				return false
			}
		}
	}
	if reason := c.keptFrom(p); reason != "" {
		v.Filter, v.Detail = verdict.PodAffinity, reason
		return false
	}
	return true
}

// exceeded returns why a pod more in the domain of a provider is one too many, "" if it is not.
func (sp *spread) exceeded(p *provider) string {
	domain, has := p.domain(sp.Key)
	if !has {
		return "has no " + short(sp.Key)
	}
	if sp.counts[domain]+sp.self-sp.fewest > sp.MaxSkew {
		return fmt.Sprintf("maxSkew %d exceeded in %s %s", sp.MaxSkew, short(sp.Key), domain)
	}
	return ""
}

// keptFrom returns why the affinities of the pod, or of others, keep it from a provider, "" if none does.
func (c *cycle) keptFrom(p *provider) string {
	for i := range c.constraints.with {
		t := &c.constraints.with[i]
		domain, has := p.domain(t.Key)
		switch {
		case !has:
			return "has no " + short(t.Key)
		case t.in[domain] == 0 && !c.constraints.first:
			return fmt.Sprintf("no pod of its affinity in %s %s", short(t.Key), domain)
		}
	}
	for i := range c.constraints.without {
		t := &c.constraints.without[i]
		if domain, has := p.domain(t.Key); has && t.in[domain] > 0 {
			return fmt.Sprintf("anti-affinity to a pod in %s %s", short(t.Key), domain)
		}
	}
	for key, domains := range c.constraints.kept {
		if domain, has := p.domain(key); has && domains[domain] {
			return fmt.Sprintf("anti-affinity of a pod in %s %s", short(key), domain)
		}
	}
	return ""
}

// unmet returns the first requirement of node selector and affinity that the provider does not meet; nil if it meets
// them.
func (c *cycle) unmet(p *provider) *string {
	for _, any := range c.constraints.required {
		var first *string
		met := slices.ContainsFunc(any, func(term []labels.Requirement) bool {
			r := firstUnmet(term, p)
			if r != nil && first == nil {
				reason := describe(r)
				first = &reason
			}
			return r == nil
		})
		if !met {
			return first
		}
	}
	return nil
}

func firstUnmet(term []labels.Requirement, p *provider) *labels.Requirement {
	for i := range term {
		if !term[i].Matches(domains{p}) {
			return &term[i]
		}
	}
	return nil
}

// preferred returns how far a provider meets the preferred constraints, 0 to 1: the mean of node affinities, affinities
// to pods, and spreads, by weight. A spread weighs as much as a node affinity of weight 100.
func (c *cycle) preferred(p *provider) float64 {
	const spreadWeight = 100
	met, of := 0.0, 0.0
	for i := range c.pod.Constraints.Preferred {
		preference := &c.pod.Constraints.Preferred[i]
		of += float64(preference.Weight)
		if firstUnmet(preference.Requirements, p) == nil {
			met += float64(preference.Weight)
		}
	}
	for i := range c.constraints.weighted {
		t := &c.constraints.weighted[i]
		of += math.Abs(float64(t.weight))
		domain, has := p.domain(t.Key)
		if t.weight > 0 == (has && t.in[domain] > 0) {
			met += math.Abs(float64(t.weight))
		}
	}
	for i := range c.constraints.spreads {
		sp := &c.constraints.spreads[i]
		if sp.Required {
			continue
		}
		of += spreadWeight
		if domain, has := p.domain(sp.Key); has && sp.most > 0 {
			met += spreadWeight * float64(sp.most-sp.counts[domain]) / float64(sp.most)
		} else if has {
			met += spreadWeight
		}
	}
	if of == 0 {
		return 1 // All of them are about keys that no provider has.
	}
	return met / of
}

// known returns the terms without the requirements about keys that no provider has: those are about the pod's Node. It
// is empty if a term has no other.
func (s *State) known(any constraints.AnyOf) constraints.AnyOf {
	known := make(constraints.AnyOf, len(any))
	for i, term := range any {
		for k := range term {
			if key := term[k].Key(); wellKnown(key) || s.hasKey(key) {
				known[i] = append(known[i], term[k])
			}
		}
		if len(known[i]) == 0 {
			return nil
		}
	}
	return known
}

// hasKey reports whether a provider has a value of a key.
func (s *State) hasKey(key string) bool {
	return slices.ContainsFunc(s.providers, func(p *provider) bool {
		_, has := p.domain(key)
		return has
	})
}

// wellKnown reports whether a requirement about a key counts although no provider has it. An invalid requirement has no
// key.
func wellKnown(key string) bool {
	return standsFor[key] != nil || key == ""
}

// standsFor has, for the well-known labels of Nodes, the names of attributes and labels of providers with that meaning.
var standsFor = map[string][]string{
	corev1.LabelTopologyRegion: {"region", "topology.liqo.io/region"},
	corev1.LabelTopologyZone:   {"zone"},
	corev1.LabelArchStable:     {"arch"},
	corev1.LabelOSStable:       {"os"},
}

// domains are a provider's values of topology keys, as labels.
type domains struct{ *provider }

// Has implements labels.Labels.
func (d domains) Has(key string) bool {
	_, has := d.domain(key)
	return has
}

// Get implements labels.Labels.
func (d domains) Get(key string) string {
	value, _ := d.domain(key)
	return value
}

// Lookup implements labels.Labels.
func (d domains) Lookup(key string) (string, bool) { return d.domain(key) }

// maxShown is the number of values of a requirement that a reason shows.
const maxShown = 3

// describe returns a requirement that is not met: "region not in [eu]".
func describe(r *labels.Requirement) string {
	values := r.Values().List()
	shown := strings.Join(values[:min(len(values), maxShown)], " ")
	if len(values) > maxShown {
		shown += " …"
	}
	key := short(r.Key())
	switch r.Operator() {
	case "in":
		return fmt.Sprintf("%s not in [%s]", key, shown)
	case "notin":
		return fmt.Sprintf("%s in [%s]", key, shown)
	case "exists":
		return "has no " + key
	case "!":
		return "has a " + key
	case "gt":
		return fmt.Sprintf("%s not greater than %s", key, shown)
	case "lt":
		return fmt.Sprintf("%s not less than %s", key, shown)
	}
	return "invalid node affinity"
}

// short returns a key as people say it.
func short(key string) string {
	if names := standsFor[key]; names != nil {
		return names[0]
	}
	return key
}
