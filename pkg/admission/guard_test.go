package admission

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// whole is the guard of the oldest deploy/guard.yaml.
func whole() []runtime.Object { return both(Policies()...) }

// both are policies with their bindings.
func both(names ...string) (objects []runtime.Object) {
	for _, name := range names {
		meta := metav1.ObjectMeta{Name: name}
		objects = append(objects,
			&admissionv1.ValidatingAdmissionPolicy{
				ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{FailurePolicy: ptr.To(admissionv1.Fail)},
			},
			&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			}})
	}
	return objects
}

// start runs a Guard until the test ends.
func start(t *testing.T, kube *fake.Clientset) *Guard {
	t.Helper()
	g, err := New(kube, func(context.Context) {})
	require.NoError(t, err)
	require.Equal(t, "the guard's policies have not been read yet", g.Missing(), "before it runs")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	return g
}

func TestGuardKnowsWhatIsMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		objects []runtime.Object
		missing string
		count   int
	}{
		"nothing":       {whole(), "", 0},
		"a policy":      {whole()[1:], "policy liqo-broker-assignments is missing", 1},
		"a binding":     {append(whole()[:1], whole()[2:]...), "policy liqo-broker-assignments has no binding", 1},
		"everything":    {nil, "policy liqo-broker-shadowpods is missing", len(Policies())},
		"it only warns": {warns(), "policy liqo-broker-assignments has a binding without the validationAction Deny", 1},
		"it matches a part": {
			narrowed(), "policy liqo-broker-assignments has a binding with matchResources, which must be unset", 1,
		},
		"one that the guard names": {names("liqo-broker-labels"), "policy liqo-broker-labels is missing", 1},
		"its binding": {
			append(names("liqo-broker-labels"), both("liqo-broker-labels")[0]), "policy liqo-broker-labels has no binding", 1,
		},
		"none that the guard names": {
			append(names("liqo-broker-labels, liqo-broker-slices"), both("liqo-broker-labels", "liqo-broker-slices")...), "", 0,
		},
		"none of an older guard":  {append(whole(), both("liqo-broker-labels")[:1]...), "", 0},
		"the classes are bounded": {append(whole(), both(classes)...), "", 0},
		"not by a binding":        {append(whole(), both(classes)[0]), "policy liqo-broker-classes has no binding", 1},
		"not by a policy":         {append(whole(), both(classes)[1]), "policy liqo-broker-classes is missing", 1},
		"it ignores fault":        {ignores(), "policy liqo-broker-assignments does not have failurePolicy Fail", 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, fake.NewClientset(tc.objects...))
			read := func() bool { return g.Missing() != "the guard's policies have not been read yet" }
			require.Eventually(t, read, 30*time.Second, 10*time.Millisecond)
			require.Equal(t, tc.count, g.Count())
			require.Len(t, Faults(sorted(tc.objects)), tc.count)
			if tc.missing == "" {
				require.Empty(t, g.Missing())
				return
			}
			require.Contains(t, g.Missing(), tc.missing)
			require.Contains(t, g.Missing(), remedy)
		})
	}
}

// sorted returns the policies and the bindings among objects.
func sorted(all []runtime.Object) (
	policies []admissionv1.ValidatingAdmissionPolicy, bindings []admissionv1.ValidatingAdmissionPolicyBinding,
) {
	for _, o := range all {
		switch o := o.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			policies = append(policies, *o)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			bindings = append(bindings, *o)
		}
	}
	return policies, bindings
}

// names is a guard that names further policies.
func names(further string) []runtime.Object {
	all := whole()
	all[0].(*admissionv1.ValidatingAdmissionPolicy).Annotations = map[string]string{PoliciesAnnotation: further}
	return all
}

func narrowed() []runtime.Object {
	all := whole()
	all[1].(*admissionv1.ValidatingAdmissionPolicyBinding).Spec.MatchResources = &admissionv1.MatchResources{}
	return all
}

func warns() []runtime.Object {
	all := whole()
	all[1].(*admissionv1.ValidatingAdmissionPolicyBinding).Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
	return all
}

func ignores() []runtime.Object {
	all := whole()
	all[0].(*admissionv1.ValidatingAdmissionPolicy).Spec.FailurePolicy = ptr.To(admissionv1.Ignore)
	return all
}

// A broker with an older ClusterRole may not list the policies.
func TestAGuardThatCannotBeReadIsNotKnown(t *testing.T) {
	kube := fake.NewClientset(whole()...)
	kube.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("may not list")
	})
	g := start(t, kube)
	read := func() bool { return g.Missing() != "the guard's policies have not been read yet" }
	require.Eventually(t, read, 30*time.Second, 10*time.Millisecond)
	require.Contains(t, g.Missing(), "may not list")
	require.Contains(t, g.Missing(), "--require-guard=false")
	require.Equal(t, len(Policies()), g.Count())
}
