package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
)

// Remedy is what an administrator can do if the guard is incomplete.
const Remedy = "run kubectl apply -f deploy/guard.yaml, or start the broker with --require-guard=false"

// Recheck is how often that is tried which waits for the guard.
const Recheck = 5 * time.Second

// checkInterval is how often the state is compared.
const checkInterval = time.Second

// Policies are the names of the policies of deploy/guard.yaml, each of which has a binding of the same name.
func Policies() []string {
	return []string{
		"liqo-broker-assignments", "liqo-broker-exposure", "liqo-broker-identities", "liqo-broker-namespaces", "liqo-broker-offers",
		"liqo-broker-pods", "liqo-broker-shadowpods",
	}
}

// Guard is what is known of the policies and their bindings. A nil Guard is not required, and always complete.
type Guard struct {
	factory  informers.SharedInformerFactory
	policies listers.ValidatingAdmissionPolicyLister
	bindings listers.ValidatingAdmissionPolicyBindingLister
	synced   []cache.InformerSynced
	// changed is called when Missing has changed.
	changed func(ctx context.Context)

	mu sync.Mutex
	// err is the last error of a watch before the caches had synced; guarded by mu.
	err error
}

// New returns a Guard, which knows nothing before Run. changed is called when Missing returns another text.
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

// Missing returns what the guard lacks, with the remedy; "" if it is complete.
func (g *Guard) Missing() string {
	if g == nil {
		return ""
	}
	faults, known := g.faults()
	if !known {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.err != nil {
			return fmt.Sprintf("the guard is not known: %v; update the broker's ClusterRole, then %s", g.err, Remedy)
		}
		return "the guard is not known yet"
	}
	if len(faults) == 0 {
		return ""
	}
	return "the guard is incomplete: " + strings.Join(faults, ", ") + "; " + Remedy
}

// Count returns how many policies are missing or not in force: all, as long as that is not known.
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
	bindings, err := g.bindings.List(labels.Everything())
	if err != nil {
		return nil, false
	}
	for _, name := range Policies() {
		at := slices.IndexFunc(bindings, func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool { return b.Name == name })
		policy, err := g.policies.Get(name)
		fault := ""
		switch {
		case err != nil:
			fault = "is missing"
		case policy.Spec.FailurePolicy != nil && *policy.Spec.FailurePolicy != admissionv1.Fail:
			fault = "has not the failurePolicy Fail"
		case at < 0 || bindings[at].Spec.PolicyName != name:
			fault = "has no binding"
		case !slices.Contains(bindings[at].Spec.ValidationActions, admissionv1.Deny):
			fault = "has a binding that does not Deny"
		}
		if fault != "" {
			faults = append(faults, "policy "+name+" "+fault)
		}
	}
	return faults, true
}
