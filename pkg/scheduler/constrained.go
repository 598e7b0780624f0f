package scheduler

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// constrained has the pod's constraints, and the pods that they read, during one decision.
type constrained struct {
	// required are the alternatives of the pod's node selector and affinity, without those about keys that no provider
	// has.
	required []constraints.AnyOf
	spreads  []spread
	// with and without are the required affinities to other pods, and weighted the preferred ones.
	with, without []selected
	weighted      []weighted
	// accepted has the providers that the filters of the policy and the pod accept; nil is all.
	accepted map[string]bool
	// first means that the pod is the first of the group that its affinity selects.
	first bool
	// kept has the domains from which the anti-affinity of other pods keeps the pod away, sorted by key.
	kept []keptDomains
}

// keptDomains are domains of a topology key.
type keptDomains struct {
	key     string
	domains sets.Set[string]
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

// beginConstraints counts the pods that the pod's constraints select, and those that keep it away.
func (c *cycle) beginConstraints(s *State) {
	of := s.peers[c.pod.Namespace]
	c.constraints.kept = c.keptAway(s, of)
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
	for i := range own.Spread {
		if s.hasKey(own.Spread[i].Key) {
			c.constraints.spreads = append(c.constraints.spreads, spread{Spread: &own.Spread[i]})
		}
	}
	c.countSpreads(s, of)
	c.countAffinity(s, of)
	for i := range own.AntiAffinity {
		if t := &own.AntiAffinity[i]; s.hasKey(t.Key) {
			c.constraints.without = append(c.constraints.without, selected{t, s.inDomains(t.Key, c.count(s, of, t.Selector, anyPeer))})
		}
	}
	for i := range own.PreferredPeers {
		if t := &own.PreferredPeers[i]; s.hasKey(t.Key) {
			in := s.inDomains(t.Key, c.count(s, of, t.Selector, anyPeer))
			c.constraints.weighted = append(c.constraints.weighted, weighted{selected{&t.Term, in}, t.Weight})
		}
	}
}

// countAffinity counts the pods that all terms of the pod's affinity select. If there is none, a pod that selects
// itself is the first of its group (satisfyPodAffinity in kube-scheduler's plugin InterPodAffinity). Pods at providers
// that take no more do not count: one after the other would have to stay with the rest, and none could move.
func (c *cycle) countAffinity(s *State, of *peers) {
	own := c.pod.Constraints.Affinity
	if len(own) == 0 {
		return
	}
	all := func(p *constraints.Peer) bool {
		return !slices.ContainsFunc(own, func(t constraints.Term) bool { return !t.Selects(p.Labels) })
	}
	at := c.count(s, of, own[0].Selector, all)
	for _, p := range s.providers {
		if !c.eligible(p) {
			delete(at, p.ID)
		}
	}
	any := false
	for i := range own {
		if t := &own[i]; s.hasKey(t.Key) {
			found := selected{t, s.inDomains(t.Key, at)}
			any = any || len(found.in) > 0
			c.constraints.with = append(c.constraints.with, found)
		}
	}
	c.constraints.first = !any && all(&constraints.Peer{Labels: c.pod.Labels})
}

// eligible reports whether a provider takes pods such as this one, if it has capacity: only such providers are domains.
func (c *cycle) eligible(p *provider) bool {
	var ignored verdict.Verdict
	accepted := c.constraints.accepted
	return c.filterProvider(p, &ignored) && len(p.usable) > 0 && (accepted == nil || accepted[p.ID])
}

// beginAccepted evaluates the filters on all providers, if the domains of the pod's spreads depend on them.
func (c *cycle) beginAccepted(s *State) {
	if !c.pod.Constraints.ReadsPeers() || c.policy.Filter == nil && c.pod.Expression == nil {
		return
	}
	c.constraints.accepted = make(map[string]bool, len(s.providers))
	for _, p := range s.providers {
		var v verdict.Verdict
		if c.accepts(trialPolicy, c.policy.Filter, verdict.PolicyFilter, p, &v) &&
			c.accepts(trialPod, c.pod.Expression, verdict.PodFilter, p, &v) {
			c.constraints.accepted[p.ID] = true
		}
	}
}

func anyPeer(*constraints.Peer) bool { return true }

// count counts the pods that are selected, without the pod itself, by the ID of their provider.
func (c *cycle) count(s *State, of *peers, selector labels.Selector, counts func(*constraints.Peer) bool) map[string]int {
	at := map[string]int{}
	of.each(selector, func(g *group) {
		if counts(g.Peer) {
			for provider, count := range c.othersOf(s, g) {
				at[provider] += count
			}
		}
	})
	return at
}

// othersOf returns the numbers of the pods of a group by the ID of their provider, without the pod itself.
func (c *cycle) othersOf(s *State, g *group) map[string]int {
	own := s.assignments[HolderOf(c.pod.UID)]
	if own.peer != g {
		return g.at
	}
	others := maps.Clone(g.at)
	others[own.load.at.Provider]--
	return others
}

// inDomains adds up numbers of pods by domain.
func (s *State) inDomains(key string, at map[string]int) map[string]int {
	in := map[string]int{}
	for id, count := range at {
		i, exists := s.find(id)
		if !exists || count == 0 {
			continue
		}
		if domain, has := s.providers[i].topology(key); has {
			in[domain] += count
		}
	}
	return in
}

// keptAway returns the domains from which other pods keep the pod away, sorted by key.
func (c *cycle) keptAway(s *State, of *peers) (kept []keptDomains) {
	if of == nil || len(of.repelling) == 0 {
		return nil
	}
	byKey := map[string]sets.Set[string]{}
	for g := range of.repelling {
		at := c.othersOf(s, g)
		for i := range g.AntiAffinity {
			t := &g.AntiAffinity[i]
			if !t.Selects(c.pod.Labels) {
				continue
			}
			for domain := range s.inDomains(t.Key, at) {
				if byKey[t.Key] == nil {
					byKey[t.Key] = sets.New[string]()
				}
				byKey[t.Key].Insert(domain)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		kept = append(kept, keptDomains{key, byKey[key]})
	}
	return kept
}

// countSpreads counts the pods of each domain. A provider that the pod may use makes a domain, if it has one of each
// required spread. The pods at other providers of the domain count as well.
func (c *cycle) countSpreads(s *State, of *peers) {
	for i := range c.constraints.spreads {
		sp := &c.constraints.spreads[i]
		sp.counts = map[string]int{}
		if sp.Selector.Matches(labels.Set(c.pod.Labels)) {
			sp.self = 1
		}
		var at map[string]int
		// An empty selector selects the pod itself, but counts no pods (countPodsMatchSelector in kube-scheduler's plugin
		// PodTopologySpread).
		if !sp.Selector.Empty() {
			at = c.count(s, of, sp.Selector, func(p *constraints.Peer) bool { return !p.Terminating })
		}
		counted := make([]bool, len(s.providers))
		for k, p := range s.providers {
			domain, has := p.topology(sp.Key)
			counted[k] = has && (sp.AllProviders || c.unmet(p) == nil) && c.inAllDomains(p, sp.Required)
			if counted[k] && c.eligible(p) {
				sp.counts[domain] = 0
			}
		}
		for k, p := range s.providers {
			domain, _ := p.topology(sp.Key)
			if _, is := sp.counts[domain]; is && counted[k] {
				sp.counts[domain] += at[p.ID]
			}
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
		_, has := p.topology(sp.Key)
		return sp.Required == required && !has
	})
}

// filterConstraints reports whether the provider meets the pod's required constraints, and no other pod keeps it away.
func (c *cycle) filterConstraints(p *provider, v *verdict.Verdict) bool {
	if r := c.unmet(p); r != nil {
		v.Filter, v.Detail = verdict.NodeAffinity, describe(r)
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
	domain, has := p.topology(sp.Key)
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
		domain, has := p.topology(t.Key)
		switch {
		case !has:
			return "has no " + short(t.Key)
		case t.in[domain] == 0 && !c.constraints.first:
			return fmt.Sprintf("no pod of its affinity in %s %s", short(t.Key), domain)
		}
	}
	for i := range c.constraints.without {
		t := &c.constraints.without[i]
		if domain, has := p.topology(t.Key); has && t.in[domain] > 0 {
			return fmt.Sprintf("anti-affinity to a pod in %s %s", short(t.Key), domain)
		}
	}
	for i := range c.constraints.kept {
		k := &c.constraints.kept[i]
		if domain, has := p.topology(k.key); has && k.domains.Has(domain) {
			return fmt.Sprintf("anti-affinity of a pod in %s %s", short(k.key), domain)
		}
	}
	return ""
}

// unmet returns the first requirement of node selector and affinity that the provider does not meet; nil if it meets
// them.
func (c *cycle) unmet(p *provider) *labels.Requirement {
	for _, any := range c.constraints.required {
		var first *labels.Requirement
		met := slices.ContainsFunc(any, func(term []labels.Requirement) bool {
			r := firstUnmet(term, p)
			if first == nil {
				first = r
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
		domain, has := p.topology(t.Key)
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
		if domain, has := p.topology(sp.Key); has && sp.most > 0 {
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
			if s.hasKey(term[k].Key()) {
				known[i] = append(known[i], term[k])
			}
		}
		if len(known[i]) == 0 {
			return nil
		}
	}
	return known
}

// hasKey reports whether a key is about providers: an administrator has set it for one of them. Labels that a provider
// advertises do not count: by a key that pods use for Nodes it could attract or repel pods.
func (s *State) hasKey(key string) bool {
	return slices.ContainsFunc(s.providers, func(p *provider) bool {
		_, has := p.topology(key)
		return has
	})
}

// topology returns the provider's value of the key of a constraint, false if it has none: the attribute of that name, or
// the one that stands for a well-known label of Nodes. By the key ProviderLabel each provider is a domain of its own.
func (p *provider) topology(key string) (string, bool) {
	if key == v1alpha1.ProviderLabel {
		return p.ID, true
	}
	value, has := p.Attributes[key]
	if name := standsFor[key]; !has && name != "" {
		value, has = p.Attributes[name]
	}
	return value, has
}

// standsFor has the attributes of providers that stand for well-known labels of Nodes.
var standsFor = map[string]string{
	corev1.LabelTopologyRegion: "region", corev1.LabelTopologyZone: "zone", corev1.LabelArchStable: "arch", corev1.LabelOSStable: "os",
}

// domains are a provider's values of topology keys, as labels.
type domains struct{ *provider }

// Has implements labels.Labels.
func (d domains) Has(key string) bool {
	_, has := d.topology(key)
	return has
}

// Get implements labels.Labels.
func (d domains) Get(key string) string {
	value, _ := d.topology(key)
	return value
}

// Lookup implements labels.Labels.
func (d domains) Lookup(key string) (string, bool) { return d.topology(key) }

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
	return "node affinity"
}

// short returns a key as people say it.
func short(key string) string {
	if name := standsFor[key]; name != "" {
		return name
	}
	return key
}
