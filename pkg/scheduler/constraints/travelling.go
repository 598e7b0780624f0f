package constraints

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Travelling are the constraints of a pod that Liqo does not forward to the next cluster. The virtual kubelet sends them
// in v1alpha1.ConstraintsAnnotation.
type Travelling struct {
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Affinity     *corev1.Affinity  `json:"affinity,omitempty"`
}

// Parse reads Travelling constraints, of MaxSize bytes at most.
func Parse(text string) (*Travelling, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("longer than %d bytes", MaxSize)
	}
	var t Travelling
	strict := json.NewDecoder(strings.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&t); err != nil {
		return nil, fmt.Errorf("not JSON of a nodeSelector and an affinity: %w", err)
	}
	if err := t.validate(); err != nil {
		return nil, err
	}
	return &t, nil
}

// validate checks the parts that no API server has checked.
func (t *Travelling) validate() error {
	for key, value := range t.NodeSelector {
		if _, err := labels.NewRequirement(key, selection.In, []string{value}); err != nil {
			return fmt.Errorf("nodeSelector: %w", err)
		}
	}
	if t.Affinity == nil {
		return nil
	}
	if of := t.Affinity.NodeAffinity; of != nil {
		var terms []corev1.NodeSelectorTerm
		if of.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			terms = of.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			if len(terms) == 0 {
				return errors.New("affinity.nodeAffinity: nodeSelectorTerms is empty")
			}
		}
		for _, preferred := range of.PreferredDuringSchedulingIgnoredDuringExecution {
			if err := validateWeight(preferred.Weight); err != nil {
				return fmt.Errorf("affinity.nodeAffinity: %w", err)
			}
			terms = append(slices.Clip(terms), preferred.Preference)
		}
		for i := range terms {
			if err := validateTerm(&terms[i]); err != nil {
				return fmt.Errorf("affinity.nodeAffinity: %w", err)
			}
		}
	}
	if of := t.Affinity.PodAffinity; of != nil {
		err := validatePeers(of.RequiredDuringSchedulingIgnoredDuringExecution, of.PreferredDuringSchedulingIgnoredDuringExecution)
		if err != nil {
			return fmt.Errorf("affinity.podAffinity: %w", err)
		}
	}
	if of := t.Affinity.PodAntiAffinity; of != nil {
		err := validatePeers(of.RequiredDuringSchedulingIgnoredDuringExecution, of.PreferredDuringSchedulingIgnoredDuringExecution)
		if err != nil {
			return fmt.Errorf("affinity.podAntiAffinity: %w", err)
		}
	}
	return nil
}

func validateTerm(term *corev1.NodeSelectorTerm) error {
	if len(term.MatchExpressions) == 0 || len(term.MatchFields) > 0 {
		return errors.New("a term needs matchExpressions, and may have no matchFields")
	}
	for _, e := range term.MatchExpressions {
		if _, err := labels.NewRequirement(e.Key, operator(e.Operator), e.Values); err != nil {
			return err
		}
	}
	return nil
}

func validatePeers(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) error {
	for i := range preferred {
		if err := validateWeight(preferred[i].Weight); err != nil {
			return err
		}
		required = append(slices.Clip(required), preferred[i].PodAffinityTerm)
	}
	for i := range required {
		if _, err := metav1.LabelSelectorAsSelector(required[i].LabelSelector); err != nil {
			return err
		}
		if required[i].TopologyKey == "" {
			return errors.New("a term needs a topologyKey")
		}
	}
	return nil
}

func validateWeight(weight int32) error {
	if weight < 1 || weight > 100 {
		return fmt.Errorf("the weight %d is not in the range 1 to 100", weight)
	}
	return nil
}

// Annotation returns the value of v1alpha1.ConstraintsAnnotation for the next cluster: the pod's own, if its owner has
// set it, or else its constraints without those about its Node; "" if there are none.
func Annotation(pod *corev1.Pod) string {
	if own := pod.Annotations[v1alpha1.ConstraintsAnnotation]; own != "" {
		return own
	}
	t := Travelling{Affinity: affinityOf(pod)}
	for key, value := range pod.Spec.NodeSelector {
		if !nodeOf(pod).Has(key) {
			if t.NodeSelector == nil {
				t.NodeSelector = map[string]string{}
			}
			t.NodeSelector[key] = value
		}
	}
	if t.NodeSelector == nil && t.Affinity == nil {
		return ""
	}
	text, err := json.Marshal(t)
	if err != nil {
		return "" // Strings and numbers can always be marshalled.
	}
	return string(text)
}

// affinityOf returns the pod's affinity without the parts that are about its Node or other namespaces; nil if nothing is
// left.
func affinityOf(pod *corev1.Pod) *corev1.Affinity {
	own := pod.Spec.Affinity
	if own == nil {
		return nil
	}
	var left corev1.Affinity
	if own.NodeAffinity != nil {
		left.NodeAffinity = nodeAffinityOf(pod, own.NodeAffinity)
	}
	if of := own.PodAffinity; of != nil {
		r, p := leftTerms(pod, of.RequiredDuringSchedulingIgnoredDuringExecution, of.PreferredDuringSchedulingIgnoredDuringExecution)
		if len(r)+len(p) > 0 {
			left.PodAffinity = &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: r, PreferredDuringSchedulingIgnoredDuringExecution: p,
			}
		}
	}
	if of := own.PodAntiAffinity; of != nil {
		r, p := leftTerms(pod, of.RequiredDuringSchedulingIgnoredDuringExecution, of.PreferredDuringSchedulingIgnoredDuringExecution)
		if len(r)+len(p) > 0 {
			left.PodAntiAffinity = &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: r, PreferredDuringSchedulingIgnoredDuringExecution: p,
			}
		}
	}
	if left == (corev1.Affinity{}) {
		return nil
	}
	return &left
}

func nodeAffinityOf(pod *corev1.Pod, own *corev1.NodeAffinity) *corev1.NodeAffinity {
	var left corev1.NodeAffinity
	if required := own.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		if terms := leftNodeTerms(pod, required.NodeSelectorTerms); len(terms) > 0 {
			left.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
		}
	}
	for i := range own.PreferredDuringSchedulingIgnoredDuringExecution {
		preferred := own.PreferredDuringSchedulingIgnoredDuringExecution[i]
		if expressions, possible := leftExpressions(pod, &preferred.Preference); possible && len(expressions) > 0 {
			preferred.Preference = corev1.NodeSelectorTerm{MatchExpressions: expressions}
			left.PreferredDuringSchedulingIgnoredDuringExecution = append(left.PreferredDuringSchedulingIgnoredDuringExecution, preferred)
		}
	}
	if left.RequiredDuringSchedulingIgnoredDuringExecution == nil && left.PreferredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return &left
}

// leftNodeTerms returns the terms that the pod's Node meets; none if it meets one of them wholly by itself.
func leftNodeTerms(pod *corev1.Pod, terms []corev1.NodeSelectorTerm) (left []corev1.NodeSelectorTerm) {
	for i := range terms {
		expressions, possible := leftExpressions(pod, &terms[i])
		switch {
		case !possible:
		case len(expressions) == 0:
			return nil
		default:
			left = append(left, corev1.NodeSelectorTerm{MatchExpressions: expressions})
		}
	}
	return left
}

// leftExpressions returns the requirements of a term that are not about the pod's Node itself; false if its Node does
// not meet one of those.
func leftExpressions(pod *corev1.Pod, term *corev1.NodeSelectorTerm) ([]corev1.NodeSelectorRequirement, bool) {
	if _, possible := ofTerm(nodeOf(pod), term); !possible {
		return nil, false
	}
	return slices.DeleteFunc(slices.Clone(term.MatchExpressions), func(r corev1.NodeSelectorRequirement) bool {
		return nodeOf(pod).Has(r.Key)
	}), true
}

// leftTerms returns the terms about pods of the same namespace by keys that may be about providers.
func leftTerms(pod *corev1.Pod, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm,
) (r []corev1.PodAffinityTerm, p []corev1.WeightedPodAffinityTerm) {
	for i := range required {
		if _, ok := term(pod, &required[i]); ok {
			r = append(r, here(&required[i]))
		}
	}
	for i := range preferred {
		if _, ok := term(pod, &preferred[i].PodAffinityTerm); ok {
			p = append(p, corev1.WeightedPodAffinityTerm{Weight: preferred[i].Weight, PodAffinityTerm: here(&preferred[i].PodAffinityTerm)})
		}
	}
	return r, p
}

// here returns a term without the name of the pod's namespace, which has another name in the next cluster.
func here(t *corev1.PodAffinityTerm) corev1.PodAffinityTerm {
	own := *t
	own.Namespaces = nil
	return own
}
