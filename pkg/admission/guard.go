package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
)

// remedy is the administrator's remedy for an incomplete guard.
const remedy = "run kubectl apply -f deploy/guard.yaml, or start the broker with --require-guard=false"

// Recheck is the interval at which work that waits for the guard is retried.
const Recheck = 5 * time.Second

// checkInterval is how often the state is compared.
const checkInterval = time.Second

// PoliciesAnnotation is on the policy liqo-broker-assignments. It lists, separated by commas, the policies of
// deploy/guard.yaml that only some versions of it have. From it the broker knows the policies to expect of a guard that
// is older than itself.
const PoliciesAnnotation = "brokering.liqo.io/policies"

// assignments is the policy that has the annotation, and classes the policy of a component, which need not be
// installed.
const assignments, classes = "liqo-broker-assignments", "liqo-broker-classes"

// Policies are the names of the policies in every version of deploy/guard.yaml. Each has a binding of the same name.
func Policies() []string {
	return []string{
		assignments, "liqo-broker-exposure", "liqo-broker-identities", "liqo-broker-namespaces", "liqo-broker-offers",
		"liqo-broker-pods", "liqo-broker-shadowpods",
	}
}

// Guard is the observed state of the policies and their bindings. A nil Guard is not required, and always complete.
type Guard struct {
	factory  informers.SharedInformerFactory
	policies listers.ValidatingAdmissionPolicyLister
	bindings listers.ValidatingAdmissionPolicyBindingLister
	synced   []cache.InformerSynced
	// changed is called when the result of Missing has changed.
	changed func(ctx context.Context)

	mu sync.Mutex
	// err is the last error of a watch before the caches had synced; guarded by mu.
	err error
}

// New returns a Guard, which has no state before Run. changed is called when Missing returns another text.
func New(kube kubernetes.Interface, changed func(ctx context.Context)) (*Guard, error) {
	factory := informers.NewSharedInformerFactory(kube, 0)
	api := factory.Admissionregistration().V1()
	g := &Guard{
		factory: factory, changed: changed,
		policies: api.ValidatingAdmissionPolicies().Lister(), bindings: api.ValidatingAdmissionPolicyBindings().Lister(),
	}
	for _, informer := range []cache.SharedIndexInformer{
		api.ValidatingAdmissionPolicies().Informer(), api.ValidatingAdmissionPolicyBindings().Informer(),
	} {
		err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			g.mu.Lock()
			defer g.mu.Unlock()
			g.err = err
		})
		if err != nil {
			return nil, err
		}
		g.synced = append(g.synced, informer.HasSynced)
	}
	return g, nil
}

// Run watches until ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	g.factory.Start(ctx.Done())
	defer g.factory.Shutdown()
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for last := ""; ; {
		if now := g.Missing(); now != last {
			last = now
			g.changed(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Missing returns the faults of the guard, with the remedy; "" if it is complete.
func (g *Guard) Missing() string {
	if g == nil {
		return ""
	}
	faults, known := g.faults()
	if !known {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.err != nil {
			return fmt.Sprintf("cannot read the guard's policies: %v; update the broker's ClusterRole, then %s", g.err, remedy)
		}
		return "the guard's policies have not been read yet"
	}
	if len(faults) == 0 {
		return ""
	}
	return "the guard is incomplete: " + strings.Join(faults, ", ") + "; " + remedy
}

// Count returns the number of policies that are missing or not in force; all of them before the caches have synced.
func (g *Guard) Count() int {
	if g == nil {
		return 0
	}
	faults, known := g.faults()
	if !known {
		return len(Policies())
	}
	return len(faults)
}

// faults returns one fault of each policy that is not in force.
func (g *Guard) faults() (faults []string, known bool) {
	for _, synced := range g.synced {
		if !synced() {
			return nil, false
		}
	}
	o := objects{
		policy: func(name string) *admissionv1.ValidatingAdmissionPolicy {
			found, err := g.policies.Get(name)
			return existing(found, err)
		},
		binding: func(name string) *admissionv1.ValidatingAdmissionPolicyBinding {
			found, err := g.bindings.Get(name)
			return existing(found, err)
		},
	}
	return o.faults(), true
}

// existing returns nil for an object that was not found.
func existing[T any](found *T, err error) *T {
	if err != nil {
		return nil
	}
	return found
}

// Faults returns one fault of each policy that is not in force, of all policies and bindings of a cluster.
func Faults(policies []admissionv1.ValidatingAdmissionPolicy, bindings []admissionv1.ValidatingAdmissionPolicyBinding) []string {
	o := objects{
		policy: func(name string) *admissionv1.ValidatingAdmissionPolicy {
			i := slices.IndexFunc(policies, func(p admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == name })
			if i < 0 {
				return nil
			}
			return &policies[i]
		},
		binding: func(name string) *admissionv1.ValidatingAdmissionPolicyBinding {
			i := slices.IndexFunc(bindings, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool { return b.Name == name })
			if i < 0 {
				return nil
			}
			return &bindings[i]
		},
	}
	return o.faults()
}

// objects finds policies and bindings by their names; nil for one that does not exist.
type objects struct {
	policy  func(name string) *admissionv1.ValidatingAdmissionPolicy
	binding func(name string) *admissionv1.ValidatingAdmissionPolicyBinding
}

func (o objects) faults() (faults []string) {
	for _, name := range o.expected() {
		if fault := o.fault(name); fault != "" {
			faults = append(faults, "policy "+name+" "+fault)
		}
	}
	return faults
}

// expected returns the names of the policies that must be in force: the policies of every guard, the ones that the
// guard in the cluster names, and the policy of the classes if a part of it exists.
func (o objects) expected() []string {
	names := Policies()
	if policy := o.policy(assignments); policy != nil {
		for name := range strings.SplitSeq(policy.Annotations[PoliciesAnnotation], ",") {
			if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if o.policy(classes) != nil || o.binding(classes) != nil {
		names = append(names, classes)
	}
	return names
}

// fault returns the reason why a policy is not in force; "" if it is.
func (o objects) fault(name string) string {
	policy := o.policy(name)
	if policy == nil {
		return "is missing"
	}
	if policy.Spec.FailurePolicy != nil && *policy.Spec.FailurePolicy != admissionv1.Fail {
		return "does not have failurePolicy Fail"
	}
	binding := o.binding(name)
	switch {
	case binding == nil || binding.Spec.PolicyName != name:
		return "has no binding"
	case !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny):
		return "has a binding without the validationAction Deny"
	case binding.Spec.MatchResources != nil:
		return "has a binding with matchResources, which must be unset"
	}
	return ""
}
