package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// programs is how many compiled expressions are kept.
const programs = 1000

// criteriaFor is what a pod and its policy ask for: for the scheduler, and when to move.
type criteriaFor struct {
	policy     *scheduler.Policy
	selections []scheduler.Selection
	filter     *criteria.Program
	rules      rules
}

// errCriteria says that what a pod or its policy asks for cannot be understood. The pod stays unassigned.
var errCriteria = errors.New("invalid criteria")

// policies reads PlacementPolicies and the annotations of pods.
type policies struct {
	client   client.Reader
	programs *criteria.Cache
	// defaults are the rules where nobody says otherwise.
	defaults rules
}

// criteriaOf reads what a pod and its policy ask for. The error is an errCriteria, or one of the API; the rules are
// valid even then.
func (p *policies) criteriaOf(ctx context.Context, pod *corev1.Pod, namespace *corev1.Namespace) (criteriaFor, error) {
	c := criteriaFor{rules: p.defaults}
	policy, err := p.policyOf(ctx, pod, namespace)
	if err != nil {
		return c, err
	}
	if policy != nil {
		applyRules(&c.rules, &policy.Spec)
		if c.policy, err = p.compile(policy); err != nil {
			return c, fmt.Errorf("%w: PlacementPolicy %s: %w", errCriteria, policy.Name, err)
		}
	}
	if c.selections, err = p.selectionsOf(ctx, consumerOf(namespace)); err != nil {
		return c, err
	}
	switch mode := v1alpha1.FailoverMode(pod.Annotations[v1alpha1.FailoverAnnotation]); mode {
	case "":
	case v1alpha1.FailoverMove, v1alpha1.FailoverNever:
		c.rules.failover = mode
	default:
		// Whoever writes something there means to be careful.
		c.rules.failover = v1alpha1.FailoverNever
		return c, fmt.Errorf("%w: annotation %s=%q: use Move or Never", errCriteria, v1alpha1.FailoverAnnotation, mode)
	}
	if expression := pod.Annotations[v1alpha1.FilterAnnotation]; expression != "" {
		if c.filter, err = p.programs.Filter(expression); err != nil {
			return c, fmt.Errorf("%w: annotation %s: %w", errCriteria, v1alpha1.FilterAnnotation, err)
		}
	}
	return c, nil
}

func applyRules(r *rules, spec *v1alpha1.PlacementPolicySpec) {
	if spec.Failover.Mode != "" {
		r.failover = spec.Failover.Mode
	}
	if spec.Failover.After != nil {
		r.failoverAfter = spec.Failover.After.Duration
	}
	if spec.PendingTimeout != nil {
		r.pendingTimeout = spec.PendingTimeout.Duration
	}
}

// policyOf finds the policy for a pod: the one it names, else the first that matches; nil if none does.
func (p *policies) policyOf(ctx context.Context, pod *corev1.Pod, namespace *corev1.Namespace) (*v1alpha1.PlacementPolicy, error) {
	if name := pod.Annotations[v1alpha1.PolicyAnnotation]; name != "" {
		var policy v1alpha1.PlacementPolicy
		err := p.client.Get(ctx, client.ObjectKey{Name: name}, &policy)
		if kerrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: annotation %s: there is no PlacementPolicy %q", errCriteria, v1alpha1.PolicyAnnotation, name)
		}
		if err == nil && policy.Spec.Selection != nil {
			return nil, fmt.Errorf("%w: annotation %s: PlacementPolicy %q is a selection, which is no pod's policy",
				errCriteria, v1alpha1.PolicyAnnotation, name)
		}
		if err == nil && !forConsumer(&policy.Spec, consumerOf(namespace)) {
			return nil, fmt.Errorf("%w: annotation %s: PlacementPolicy %q is for other consumers",
				errCriteria, v1alpha1.PolicyAnnotation, name)
		}
		return &policy, err
	}
	var list v1alpha1.PlacementPolicyList
	if err := p.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(x, y v1alpha1.PlacementPolicy) int {
		if x.Spec.Priority != y.Spec.Priority {
			return int(y.Spec.Priority) - int(x.Spec.Priority)
		}
		return strings.Compare(x.Name, y.Name)
	})
	for i := range list.Items {
		if matches(&list.Items[i].Spec, pod, namespace) {
			return &list.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // No policy is an answer.
}

// selectionsOf finds what a consumer selected. Whatever else a selection says, it is for the consumers that it names.
func (p *policies) selectionsOf(ctx context.Context, consumer string) ([]scheduler.Selection, error) {
	if consumer == "" {
		return nil, nil
	}
	var list v1alpha1.PlacementPolicyList
	if err := p.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var selections []scheduler.Selection
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if spec.Selection != nil && slices.Contains(spec.Consumers, consumer) {
			selections = append(selections, scheduler.Selection{
				Only: spec.Selection.Mode == v1alpha1.SelectOnly, IDs: sets.New(spec.Selection.Providers...),
			})
		}
	}
	return selections, nil
}

func matches(spec *v1alpha1.PlacementPolicySpec, pod *corev1.Pod, namespace *corev1.Namespace) bool {
	return spec.Selection == nil && forConsumer(spec, consumerOf(namespace)) &&
		selects(spec.NamespaceSelector, namespace.Labels) && selects(spec.PodSelector, pod.Labels)
}

func forConsumer(spec *v1alpha1.PlacementPolicySpec, consumer string) bool {
	return len(spec.Consumers) == 0 || slices.Contains(spec.Consumers, consumer)
}

// selects says whether a selector matches; a nil one does, one that cannot be read does not (its policy is not valid).
func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(set))
}

// consumerOf is the id of the cluster that the pods of a namespace come from; "" is this one.
func consumerOf(namespace *corev1.Namespace) string {
	return namespace.Labels["liqo.io/remote-cluster-id"]
}

// compile turns a policy into what the scheduler understands. All that is wrong is in the error.
func (p *policies) compile(policy *v1alpha1.PlacementPolicy) (*scheduler.Policy, error) {
	spec := &policy.Spec
	compiled := &scheduler.Policy{Name: policy.Name}
	var errs []error
	if len(spec.Providers) > 0 {
		compiled.Named = sets.New(spec.Providers...)
	}
	if spec.Filter != "" {
		program, err := p.programs.Filter(spec.Filter)
		compiled.Filter, errs = program, append(errs, named("spec.filter", err))
	}
	if spec.Score != "" {
		program, err := p.programs.Score(spec.Score)
		compiled.Score, errs = program, append(errs, named("spec.score", err))
	}
	for _, w := range spec.Weights {
		compiled.Weights = append(compiled.Weights, scheduler.Weight{Plugin: w.Name, Weight: w.Weight})
	}
	errs = append(errs, named("spec.weights", scheduler.ValidateWeights(compiled.Weights)))
	if spec.Spread != nil {
		compiled.Spread = &scheduler.Spread{TopologyKey: spec.Spread.TopologyKey}
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

// reconcilePolicy says of a policy whether it can be followed and for how many assigned pods it is; when it has
// changed, the pods that wait for room are tried again.
func (b *Broker) reconcilePolicy(ctx context.Context, name string) (ctrl.Result, error) {
	var policy v1alpha1.PlacementPolicy
	if err := b.client.Get(ctx, client.ObjectKey{Name: name}, &policy); err != nil {
		// Its pods follow another policy now, or none: those too that stay unassigned because it was not valid, which
		// do not wait for room.
		b.wakePodsOf(ctx, "")
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	updated := policy.DeepCopy()
	valid, reason, message := metav1.ConditionTrue, "Valid", ""
	if _, err := b.policies.compile(&policy); err != nil {
		valid, reason, message = metav1.ConditionFalse, "Invalid", strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	conditionChanged(&updated.Status.Conditions, v1alpha1.PolicyValid, valid, reason, message, policy.Generation)
	if updated.Status.ObservedGeneration != policy.Generation {
		b.wakeWaiting()
		// Pods that are assigned follow the new rules of moving.
		b.wakePodsOf(ctx, "")
	}
	updated.Status.ObservedGeneration = policy.Generation
	pods, err := b.countPods(ctx, &policy)
	if err != nil {
		return ctrl.Result{}, err
	}
	updated.Status.Pods = pods
	if err := b.client.Status().Patch(ctx, updated, client.MergeFrom(&policy)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("status of PlacementPolicy %s: %w", name, err)
	}
	return ctrl.Result{RequeueAfter: policyCountEvery}, nil
}

// policyCountEvery is how often the pods of a policy are counted.
const policyCountEvery = 30 * time.Second

func (b *Broker) countPods(ctx context.Context, policy *v1alpha1.PlacementPolicy) (int32, error) {
	var pods corev1.PodList
	if err := b.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	n := int32(0)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Labels[v1alpha1.VirtualNodeLabel] == "" || terminal(pod) {
			continue
		}
		var namespace corev1.Namespace
		if err := b.client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &namespace); err != nil {
			continue // It is going away.
		}
		if policy.Spec.Selection != nil {
			if slices.Contains(policy.Spec.Consumers, consumerOf(&namespace)) {
				n++
			}
			continue
		}
		if found, err := b.policies.policyOf(ctx, pod, &namespace); err == nil && found != nil && found.Name == policy.Name {
			n++
		}
	}
	return n, nil
}
