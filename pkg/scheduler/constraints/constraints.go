// Package constraints reads from a pod's own fields where it may run: node selector, affinities, topology spread
// constraints. kube-scheduler applies them to Nodes. The broker's Node stands for many providers, so the scheduler
// applies them again, to providers.
//
// A topology that only Nodes have (kubernetes.io/hostname) is left to the provider's own scheduler, and so is every key
// that no provider has.
package constraints

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// The bounds of a pod's constraints. A pod with more is not assigned.
const (
	// MaxSize is the number of bytes of the node selector, the affinity and the topology spread constraints of a pod, and
	// of those that its consumer sends.
	MaxSize = 16 << 10
	// MaxTerms is the number of spreads and of terms about other pods: decisions are made under a lock.
	MaxTerms = 20
	// MaxRequirements is the number of requirements on Nodes in all terms.
	MaxRequirements = 200
)

// Constraints are a pod's constraints on providers. A nil Constraints allows every provider.
type Constraints struct {
	// Required are all to be met.
	Required []AnyOf
	// Preferred raise the score of the providers that match all their requirements.
	Preferred []Preference
	Spread    []Spread
	// Affinity are met at providers whose domain has a pod of the term, AntiAffinity at those whose domain has none.
	Affinity, AntiAffinity []Term
	// PreferredPeers raise or lower (a negative weight) the score of the providers whose domain has a pod of the term.
	PreferredPeers []WeightedTerm
}

// AnyOf has lists of requirements: one of the lists must be met.
type AnyOf [][]labels.Requirement

// Preference is a preferred term of node affinity. Its weight is 1 to 100.
type Preference struct {
	Weight       int64
	Requirements []labels.Requirement
}

// Spread is a topology spread constraint.
type Spread struct {
	Key                 string
	MaxSkew, MinDomains int
	// Required is DoNotSchedule.
	Required bool
	Selector labels.Selector
	// AllProviders counts the domains of the providers, too, that Required excludes (nodeAffinityPolicy: Ignore).
	AllProviders bool
}

// Term is a term of the affinity or anti-affinity to pods of the same namespace.
type Term struct {
	Key      string
	Selector labels.Selector
}

// Selects reports whether the term selects pods with these labels.
func (t *Term) Selects(of labels.Set) bool { return t.Selector.Matches(of) }

// WeightedTerm is a preferred Term. Its weight is 1 to 100, or -1 to -100 for anti-affinity.
type WeightedTerm struct {
	Term
	Weight int64
}

// Peer is a pod as the constraints of other pods see it.
type Peer struct {
	Namespace string
	// Labels are the pod's, without the labels by which the broker assigns it.
	Labels map[string]string
	// Terminating pods do not count in spreads, as with kube-scheduler.
	Terminating bool
	// AntiAffinity keeps away the pods that it selects.
	AntiAffinity []Term
}

// Of returns the constraints of a pod; nil if it has none. Its consumer has sent the others; nil is none.
func Of(pod *corev1.Pod, sent *Travelling) *Constraints {
	c := &Constraints{}
	c.addNodes(nodeOf(pod), pod.Spec.NodeSelector, pod.Spec.Affinity)
	c.addPeers(pod, pod.Spec.Affinity)
	if sent != nil {
		c.addNodes(nil, sent.NodeSelector, sent.Affinity)
		c.addPeers(pod, sent.Affinity)
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		c.addSpread(pod, &pod.Spec.TopologySpreadConstraints[i])
	}
	if c.isEmpty() {
		return nil
	}
	return c
}

// PeerOf returns a pod as other pods see it.
func PeerOf(pod *corev1.Pod, own *Constraints) *Peer {
	p := &Peer{Namespace: pod.Namespace, Labels: pod.Labels, Terminating: pod.DeletionTimestamp != nil}
	if _, assigned := pod.Labels[v1alpha1.ProviderLabel]; assigned { // The pods of an application are to have equal labels.
		p.Labels = maps.Clone(pod.Labels)
		delete(p.Labels, v1alpha1.ProviderLabel)
		delete(p.Labels, v1alpha1.VirtualNodeLabel)
	}
	if own != nil {
		p.AntiAffinity = own.AntiAffinity
	}
	return p
}

// ReadsPeers reports whether the constraints depend on the places of other pods.
func (c *Constraints) ReadsPeers() bool {
	return c != nil && (len(c.Spread) > 0 || len(c.Affinity) > 0 || len(c.AntiAffinity) > 0 || len(c.PreferredPeers) > 0)
}

// Selectors returns the selectors of pods.
func (c *Constraints) Selectors() (all []labels.Selector) {
	if c == nil {
		return nil
	}
	for i := range c.Spread {
		all = append(all, c.Spread[i].Selector)
	}
	for _, terms := range [][]Term{c.Affinity, c.AntiAffinity} {
		for i := range terms {
			all = append(all, terms[i].Selector)
		}
	}
	for i := range c.PreferredPeers {
		all = append(all, c.PreferredPeers[i].Selector)
	}
	return all
}

// Prefers reports whether some of the constraints are only preferred.
func (c *Constraints) Prefers() bool {
	return c != nil && (len(c.Preferred) > 0 || len(c.PreferredPeers) > 0 ||
		slices.ContainsFunc(c.Spread, func(s Spread) bool { return !s.Required }))
}

// Exceeded returns the bound that the constraints exceed, for people; "" if there is none.
func (c *Constraints) Exceeded() string {
	if c == nil {
		return ""
	}
	requirements := 0
	for _, any := range c.Required {
		for _, term := range any {
			requirements += len(term)
		}
	}
	for i := range c.Preferred {
		requirements += len(c.Preferred[i].Requirements)
	}
	switch {
	case len(c.Spread)+len(c.Affinity)+len(c.AntiAffinity)+len(c.PreferredPeers) > MaxTerms:
		return fmt.Sprintf("more than %d spreads and terms of affinity to pods", MaxTerms)
	case requirements > MaxRequirements:
		return fmt.Sprintf("more than %d requirements on nodes", MaxRequirements)
	}
	return ""
}

func (c *Constraints) isEmpty() bool {
	return len(c.Required) == 0 && len(c.Preferred) == 0 && !c.ReadsPeers()
}

// addNodes adds a node selector and a node affinity. Both are to be met, so the selector becomes part of every term.
// Requirements on the labels in node are about the pod's Node itself.
func (c *Constraints) addNodes(node labels.Set, selector map[string]string, affinity *corev1.Affinity) {
	var always []labels.Requirement
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if !node.Has(key) {
			always = append(always, requirement(key, selection.In, []string{selector[key]}))
		}
	}
	var nodes *corev1.NodeAffinity
	if affinity != nil {
		nodes = affinity.NodeAffinity
	}
	if nodes == nil || nodes.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		c.require(AnyOf{always})
	} else {
		c.require(anyOf(node, nodes.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, always))
	}
	if nodes == nil {
		return
	}
	for i := range nodes.PreferredDuringSchedulingIgnoredDuringExecution {
		preferred := &nodes.PreferredDuringSchedulingIgnoredDuringExecution[i]
		if requirements, possible := ofTerm(node, &preferred.Preference); possible && len(requirements) > 0 {
			c.Preferred = append(c.Preferred, Preference{Weight: int64(preferred.Weight), Requirements: requirements})
		}
	}
}

// require adds a requirement, unless every provider meets it.
func (c *Constraints) require(any AnyOf) {
	if len(any) > 0 && !slices.ContainsFunc(any, func(term []labels.Requirement) bool { return len(term) == 0 }) {
		c.Required = append(c.Required, any)
	}
}

// anyOf returns the terms that the pod's Node can meet, with their requirements on providers. If its Node meets no term,
// the pod was bound to it by name, and no term counts.
func anyOf(node labels.Set, terms []corev1.NodeSelectorTerm, always []labels.Requirement) AnyOf {
	var any AnyOf
	for i := range terms {
		if requirements, possible := ofTerm(node, &terms[i]); possible {
			any = append(any, append(slices.Clone(always), requirements...))
		}
	}
	if len(any) == 0 {
		return AnyOf{always}
	}
	return any
}

// ofTerm returns the requirements of a term on providers; false if the pod's Node does not meet it. A term without
// requirements matches no Node.
func ofTerm(node labels.Set, term *corev1.NodeSelectorTerm) ([]labels.Requirement, bool) {
	if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
		return nil, false
	}
	for _, field := range term.MatchFields {
		if r := requirement(corev1.LabelHostname, operator(field.Operator), field.Values); !r.Matches(node) {
			return nil, false
		}
	}
	requirements := make([]labels.Requirement, 0, len(term.MatchExpressions))
	for _, e := range term.MatchExpressions {
		requirements = append(requirements, requirement(e.Key, operator(e.Operator), e.Values))
	}
	return ofProviders(node, requirements)
}

// nodeOf has the labels by which pods are bound to virtual nodes, as the pod's Node has them.
func nodeOf(pod *corev1.Pod) labels.Set {
	return labels.Set{corev1.LabelHostname: pod.Spec.NodeName, consts.TypeLabel: consts.TypeNode, "type": "virtual-kubelet"}
}

// ofProviders returns the requirements that are not about the pod's Node itself; false if its Node does not meet one of
// those.
func ofProviders(node labels.Set, requirements []labels.Requirement) ([]labels.Requirement, bool) {
	var left []labels.Requirement
	for _, r := range requirements {
		switch {
		case !node.Has(r.Key()):
			left = append(left, r)
		case !r.Matches(node):
			return nil, false
		}
	}
	return left, true
}

// addSpread adds a topology spread constraint.
func (c *Constraints) addSpread(pod *corev1.Pod, s *corev1.TopologySpreadConstraint) {
	if s.TopologyKey == corev1.LabelHostname {
		return
	}
	spread := Spread{
		Key: s.TopologyKey, MaxSkew: int(s.MaxSkew), MinDomains: 1, Required: s.WhenUnsatisfiable == corev1.DoNotSchedule,
		Selector:     selector(pod, s.LabelSelector, s.MatchLabelKeys, nil),
		AllProviders: s.NodeAffinityPolicy != nil && *s.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore,
	}
	if s.MinDomains != nil {
		spread.MinDomains = int(*s.MinDomains)
	}
	c.Spread = append(c.Spread, spread)
}

// addPeers adds the affinities to pods. Terms about other namespaces are left out: the namespaces of a consumer have
// other names here, and the guard does not let them keep pods of others away.
func (c *Constraints) addPeers(pod *corev1.Pod, affinity *corev1.Affinity) {
	if affinity == nil {
		return
	}
	if with := affinity.PodAffinity; with != nil {
		c.Affinity = append(c.Affinity, terms(pod, with.RequiredDuringSchedulingIgnoredDuringExecution)...)
		c.addWeighted(pod, with.PreferredDuringSchedulingIgnoredDuringExecution, 1)
	}
	if without := affinity.PodAntiAffinity; without != nil {
		c.AntiAffinity = append(c.AntiAffinity, terms(pod, without.RequiredDuringSchedulingIgnoredDuringExecution)...)
		c.addWeighted(pod, without.PreferredDuringSchedulingIgnoredDuringExecution, -1)
	}
}

func (c *Constraints) addWeighted(pod *corev1.Pod, of []corev1.WeightedPodAffinityTerm, sign int64) {
	for i := range of {
		if found, ok := term(pod, &of[i].PodAffinityTerm); ok {
			c.PreferredPeers = append(c.PreferredPeers, WeightedTerm{Term: found, Weight: sign * int64(of[i].Weight)})
		}
	}
}

func terms(pod *corev1.Pod, of []corev1.PodAffinityTerm) (found []Term) {
	for i := range of {
		if t, ok := term(pod, &of[i]); ok {
			found = append(found, t)
		}
	}
	return found
}

func term(pod *corev1.Pod, t *corev1.PodAffinityTerm) (Term, bool) {
	elsewhere := t.NamespaceSelector != nil || len(t.Namespaces) > 0 && !slices.Equal(t.Namespaces, []string{pod.Namespace})
	if t.TopologyKey == corev1.LabelHostname || elsewhere {
		return Term{}, false
	}
	return Term{Key: t.TopologyKey, Selector: selector(pod, t.LabelSelector, t.MatchLabelKeys, t.MismatchLabelKeys)}, true
}

// selector returns a selector with the pod's own values of the label keys. An API server since Kubernetes 1.34 has put
// them into the selector already. A nil selector selects no pod.
func selector(pod *corev1.Pod, s *metav1.LabelSelector, matching, different []string) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || s == nil {
		return labels.Nothing()
	}
	add := func(keys []string, op selection.Operator) {
		for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
			if value, has := pod.Labels[key]; has {
				selector = selector.Add(requirement(key, op, []string{value}))
			}
		}
	}
	add(matching, selection.In)
	add(different, selection.NotIn)
	return selector
}

// operator returns the operator of a requirement on Nodes as one of label selectors.
func operator(op corev1.NodeSelectorOperator) selection.Operator {
	switch op {
	case corev1.NodeSelectorOpIn:
		return selection.In
	case corev1.NodeSelectorOpNotIn:
		return selection.NotIn
	case corev1.NodeSelectorOpExists:
		return selection.Exists
	case corev1.NodeSelectorOpDoesNotExist:
		return selection.DoesNotExist
	case corev1.NodeSelectorOpGt:
		return selection.GreaterThan
	case corev1.NodeSelectorOpLt:
		return selection.LessThan
	}
	return selection.Operator(op)
}

// requirement returns a requirement; one that no labels meet if it is invalid.
func requirement(key string, op selection.Operator, values []string) labels.Requirement {
	if r, err := labels.NewRequirement(key, op, values); err == nil {
		return *r
	}
	return labels.Requirement{}
}

// WithinProvider returns a pod spec's topology spread constraints for a provider: over regions, zones and other
// topologies the broker has spread the pods already, and the Nodes of a provider may not have such labels. So the
// provider only prefers to spread over them. It spreads over its Nodes as required.
func WithinProvider(spread []corev1.TopologySpreadConstraint) []corev1.TopologySpreadConstraint {
	var within []corev1.TopologySpreadConstraint
	for _, s := range spread {
		if s.TopologyKey != corev1.LabelHostname && s.WhenUnsatisfiable == corev1.DoNotSchedule {
			preferred := func(other corev1.TopologySpreadConstraint) bool {
				return other.TopologyKey == s.TopologyKey && other.WhenUnsatisfiable == corev1.ScheduleAnyway
			}
			if slices.ContainsFunc(spread, preferred) {
				continue // An API server rejects two of the same key.
			}
			s.WhenUnsatisfiable, s.MinDomains = corev1.ScheduleAnyway, nil // MinDomains is for DoNotSchedule only.
		}
		within = append(within, s)
	}
	return within
}
