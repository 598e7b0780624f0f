// Package placement translates objects of the API for the scheduler: providers with their slices and KPIs, pods, and
// the criteria of a pod: its PlacementPolicy, the selections of its consumer, its own annotations. The broker,
// explanations, the catalog, offers and the command line all use this translation.
package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// Criteria are the requirements of a pod and its policy: for the scheduler, and for moves.
type Criteria struct {
	// Policy is the PlacementPolicy of the pod; nil if there is none.
	Policy *scheduler.Policy
	// Selections are the selections of the pod's consumer.
	Selections []scheduler.Selection
	// Filter is the pod's own; nil if it has none.
	Filter *cel.Program
	// Constraints are the pod's own; nil if it has none.
	Constraints *constraints.Constraints
	// Volumes are the volumes of its Claims; nil if it has none.
	Volumes *scheduler.Volumes
	Claims  []Claim
	Rules   Rules
}

// Rules define when a pod is moved, by its annotations and its policy.
type Rules struct {
	Failover       v1alpha1.FailoverMode
	FailoverAfter  time.Duration
	PendingTimeout time.Duration
	// MaxUnavailable is the number of replicas that may be unavailable because of planned moves; nil is
	// defaultMaxUnavailable.
	MaxUnavailable *intstr.IntOrString
}

// ErrInvalid means that the criteria of a pod or its policy are invalid. The pod stays unassigned.
var ErrInvalid = errors.New("invalid criteria")

// Policies reads PlacementPolicies and the annotations of pods.
type Policies struct {
	Client client.Reader
	// Live reads from the API server the claims that Client, a cache, does not show yet; nil if Client is no cache.
	Live client.Reader
	// Nowhere reports whether a volume may be made at another provider than its own: it was not made there, or its policy
	// lets it be recreated; nil is never.
	Nowhere  func(ctx context.Context, pod *corev1.Pod, claim *Claim, rules *Rules) (bool, error)
	Programs *cel.Cache
	// Defaults are the rules unless a policy or a pod sets others.
	Defaults Rules
	// Compiling bounds the time for compiling the filters of pods; nil is no bound.
	Compiling *Compiling
}

// CriteriaOf reads the criteria of a pod and its policy. The error is an ErrInvalid, which may be ErrDeferred, or an
// error of the API; the rules are valid even then. A pod whose criteria are invalid never fails over: it could not be
// assigned anywhere else, and they may forbid it.
func (p *Policies) CriteriaOf(ctx context.Context, pod *corev1.Pod, namespace *corev1.Namespace) (Criteria, error) {
	ranked, err := p.Ranked(ctx)
	if err != nil {
		return Criteria{Rules: p.Defaults}, err
	}
	policy, err := ranked.Of(pod, namespace)
	if err != nil {
		return Criteria{Rules: careful(p.Defaults)}, err
	}
	return p.criteria(ctx, ranked, pod, namespace, policy)
}

// CriteriaUnder reads the criteria of a pod, with policy in place of the pod's own, if not nil. The errors are the same
// as CriteriaOf's.
func (p *Policies) CriteriaUnder(ctx context.Context, pod *corev1.Pod, namespace *corev1.Namespace,
	policy *v1alpha1.PlacementPolicy,
) (Criteria, error) {
	ranked, err := p.Ranked(ctx)
	if err != nil {
		return Criteria{Rules: p.Defaults}, err
	}
	return p.criteria(ctx, ranked, pod, namespace, policy)
}

func (p *Policies) criteria(ctx context.Context, ranked Ranking, pod *corev1.Pod, namespace *corev1.Namespace,
	policy *v1alpha1.PlacementPolicy,
) (Criteria, error) {
	c := Criteria{Rules: p.Defaults}
	if policy != nil {
		applyRules(&c.Rules, &policy.Spec)
	}
	switch err := p.read(&c, ranked, pod, namespace, policy); {
	case errors.Is(err, ErrDeferred):
		return c, err
	case err != nil:
		c.Rules = careful(c.Rules)
		return c, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	err := p.readClaims(ctx, &c, pod, policy)
	if errors.Is(err, ErrVolume) {
		c.Rules = careful(c.Rules)
	}
	return c, err
}

func (p *Policies) read(c *Criteria, ranked Ranking, pod *corev1.Pod, namespace *corev1.Namespace, policy *v1alpha1.PlacementPolicy,
) (err error) {
	if policy != nil {
		if c.Policy, err = p.Compile(policy); err != nil {
			return fmt.Errorf("PlacementPolicy %s: %w", policy.Name, err)
		}
	}
	c.Selections = ranked.selectionsOf(ConsumerOf(namespace))
	if c.Constraints, err = constraintsOf(pod); err != nil {
		return err
	}
	switch mode := v1alpha1.FailoverMode(pod.Annotations[v1alpha1.FailoverAnnotation]); mode {
	case "":
	case v1alpha1.FailoverMove, v1alpha1.FailoverNever:
		c.Rules.Failover = mode
	default:
		return fmt.Errorf("annotation %s=%s: use Move or Never", v1alpha1.FailoverAnnotation, untrusted.Value(string(mode)))
	}
	if expression := pod.Annotations[v1alpha1.FilterAnnotation]; expression != "" {
		if c.Filter, err = p.filterOf(OwnerOf(namespace), expression); err != nil && !errors.Is(err, ErrDeferred) {
			return fmt.Errorf("annotation %s: %w", v1alpha1.FilterAnnotation, err)
		}
	}
	return err
}

// filterOf compiles the filter of a pod, within the time of its owner; the error may be ErrDeferred.
func (p *Policies) filterOf(owner, expression string) (*cel.Program, error) {
	if p.Programs.HasFilter(expression) {
		return p.Programs.Filter(expression)
	}
	if !p.Compiling.allowed(owner) {
		return nil, ErrDeferred
	}
	began := time.Now()
	defer func() { p.Compiling.charge(owner, time.Since(began)) }()
	return p.Programs.Filter(expression)
}

// careful are rules that leave pods where they are.
func careful(r Rules) Rules {
	r.Failover = v1alpha1.FailoverNever
	return r
}

func applyRules(r *Rules, spec *v1alpha1.PlacementPolicySpec) {
	if spec.Failover.Mode != "" {
		r.Failover = spec.Failover.Mode
	}
	if spec.Failover.After != nil {
		r.FailoverAfter = spec.Failover.After.Duration
	}
	if spec.PendingTimeout != nil {
		r.PendingTimeout = spec.PendingTimeout.Duration
	}
	if spec.MaxUnavailable != nil && ValidateMaxUnavailable(spec.MaxUnavailable) == nil {
		r.MaxUnavailable = spec.MaxUnavailable
	}
}

// Ranking has all policies, by precedence.
type Ranking []v1alpha1.PlacementPolicy

// Ranked reads all policies. They are the cache's own: do not change them.
func (p *Policies) Ranked(ctx context.Context) (Ranking, error) {
	var list v1alpha1.PlacementPolicyList
	if err := p.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(x, y v1alpha1.PlacementPolicy) int {
		if x.Spec.Priority != y.Spec.Priority {
			return int(y.Spec.Priority) - int(x.Spec.Priority)
		}
		return strings.Compare(x.Name, y.Name)
	})
	return list.Items, nil
}

// Of is the policy for a pod: the one it names, else the first that matches; nil if none does. The error is an
// ErrInvalid.
func (r Ranking) Of(pod *corev1.Pod, namespace *corev1.Namespace) (*v1alpha1.PlacementPolicy, error) {
	named := pod.Annotations[v1alpha1.PolicyAnnotation]
	for i := range r {
		policy := &r[i]
		switch {
		case named == "" && matches(&policy.Spec, pod, namespace):
			return policy, nil
		case named != "" && named == policy.Name && policy.Spec.Selection == nil && forConsumer(&policy.Spec, ConsumerOf(namespace)):
			return policy, nil
		}
	}
	if named != "" {
		// Clients that create pods must not learn which policies and selections other consumers have.
		return nil, fmt.Errorf("%w: annotation %s: there is no PlacementPolicy %s for this pod (it cannot name selections and "+
			"policies of other consumers)", ErrInvalid, v1alpha1.PolicyAnnotation, untrusted.Value(named))
	}
	return nil, nil // No policy is an answer.
}

// selectionsOf returns the selections that name a consumer.
func (r Ranking) selectionsOf(consumer string) []scheduler.Selection {
	if consumer == "" {
		return nil
	}
	var selections []scheduler.Selection
	for i := range r {
		spec := &r[i].Spec
		if spec.Selection != nil && slices.Contains(spec.Consumers, consumer) {
			selections = append(selections, scheduler.Selection{
				Only: spec.Selection.Mode == v1alpha1.SelectOnly, IDs: sets.New(spec.Selection.Providers...),
			})
		}
	}
	return selections
}

// MayApply reports whether a policy applies to a pod if no other one does, or is a selection of its consumer.
func MayApply(policy *v1alpha1.PlacementPolicy, pod *corev1.Pod, namespace *corev1.Namespace) bool {
	if policy.Spec.Selection != nil {
		return slices.Contains(policy.Spec.Consumers, ConsumerOf(namespace))
	}
	if named := pod.Annotations[v1alpha1.PolicyAnnotation]; named != "" {
		return named == policy.Name
	}
	return matches(&policy.Spec, pod, namespace)
}

func matches(spec *v1alpha1.PlacementPolicySpec, pod *corev1.Pod, namespace *corev1.Namespace) bool {
	return spec.Selection == nil && forConsumer(spec, ConsumerOf(namespace)) &&
		selects(spec.NamespaceSelector, namespace.Labels) && selects(spec.PodSelector, pod.Labels)
}

func forConsumer(spec *v1alpha1.PlacementPolicySpec, consumer string) bool {
	return len(spec.Consumers) == 0 || slices.Contains(spec.Consumers, consumer)
}

// selects reports whether a selector matches. A nil one does; an invalid one, of an invalid policy, does not.
func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(set))
}

// Compile translates a policy for the scheduler. The error has all faults.
func (p *Policies) Compile(policy *v1alpha1.PlacementPolicy) (*scheduler.Policy, error) {
	spec := &policy.Spec
	compiled := &scheduler.Policy{Name: policy.Name, UptimeWindow: spec.UptimeWindow}
	var errs []error
	if len(spec.Providers) > 0 {
		compiled.Named = sets.New(spec.Providers...)
	}
	if spec.Filter != "" {
		program, err := p.Programs.Filter(spec.Filter)
		compiled.Filter, errs = program, append(errs, named("spec.filter", err))
	}
	if spec.Score != "" {
		program, err := p.Programs.Score(spec.Score)
		compiled.Score, errs = program, append(errs, named("spec.score", err))
	}
	for _, w := range spec.Weights {
		compiled.Weights = append(compiled.Weights, score.Weight{Plugin: w.Name, Weight: w.Weight})
	}
	errs = append(errs, named("spec.weights", score.ValidateWeights(compiled.Weights)),
		named("spec.uptimeWindow", score.ValidateUptimeWindow(spec.UptimeWindow)),
		named("spec.maxUnavailable", ValidateMaxUnavailable(spec.MaxUnavailable)))
	if spec.MaxHourlyCost != nil {
		value, ok := price.Parse(string(spec.MaxHourlyCost.Amount))
		if !ok {
			errs = append(errs, named("spec.maxHourlyCost.amount", errors.New("must be a decimal number, such as 0.042")))
		}
		compiled.MaxHourlyCost = &price.Amount{Value: value, Currency: spec.MaxHourlyCost.Currency}
	}
	if spec.Spread != nil {
		compiled.TopologyKey = spec.Spread.TopologyKey
	}
	for field, selector := range map[string]*metav1.LabelSelector{
		"spec.namespaceSelector": spec.NamespaceSelector, "spec.podSelector": spec.PodSelector,
	} {
		_, err := metav1.LabelSelectorAsSelector(selector)
		errs = append(errs, named(field, err))
	}
	return compiled, errors.Join(errs...)
}

func named(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}
