package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestConsumersRequestBoundedClasses(t *testing.T) {
	const refused = "consumers may request ResourceSlices of the class broker, and not of "
	of := func(class any) func(map[string]any) { return set(class, "spec", "class") }
	ours, cordoned := set(nil, "metadata", "labels"), set("true", "metadata", "annotations", "liqo.io/cordon-tenant")
	plugin, without, open := guard(t), unguarded(t, "liqo-broker-classes"), guardWith(t, "classes", []any{"*"})
	two := guardWith(t, "classes", []any{"gpu", "broker"})
	for name, tc := range map[string]struct {
		who      string
		old, new *unstructured.Unstructured
		because  string
		// two is whether the classes gpu and broker include it.
		two bool
	}{
		"the broker's class":                     {theConsumer, nil, slice(), "", true},
		"Liqo's own":                             {theConsumer, nil, slice(of("default")), refused + `"default"`, false},
		"none, which is Liqo's, too":             {theConsumer, nil, slice(of(nil)), refused + `""`, false},
		"one of another controller":              {theConsumer, nil, slice(of("gpu")), refused + `"gpu"`, true},
		"by who peers":                           {thePeeringUser, nil, slice(of("default")), refused, false},
		"by the replicator of this cluster":      {theReplicator, nil, slice(of("default")), refused, false},
		"another class later":                    {theConsumer, slice(), slice(of("default")), refused, false},
		"with the label of replicated ones then": {theReplicator, slice(ours, of("default")), slice(of("default")), refused, false},
		"what was there stays, and is cordoned":  {liqo, slice(of("default")), slice(of("default"), cordoned), "", true},
		"or leaves for a bounded one":            {theConsumer, slice(of("default")), slice(), "", true},
		"what this cluster requests itself":      {liqo, nil, slice(ours, of("default")), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefusal(t, ask(t, without, tc.who, "", tc.old, tc.new), "")
			requireRefusal(t, ask(t, open, tc.who, "", tc.old, tc.new), "")
			requireRefusal(t, ask(t, plugin, tc.who, "", tc.old, tc.new), tc.because)
			if tc.two {
				requireRefusal(t, ask(t, two, tc.who, "", tc.old, tc.new), "")
			} else {
				requireRefusal(t, ask(t, two, tc.who, "", tc.old, tc.new), "of the class gpu, broker, and not of")
			}
		})
	}

	for name, tc := range map[string]struct {
		changes []func(values map[string]any)
		// classes is the expression for the allowed classes, "" for every class.
		classes string
	}{
		"with the aggregator that of its offers": {nil, "['broker']"},
		"whatever that is": {
			[]func(map[string]any){set([]any{"--overcommit=2", "--offer-class=gold"}, "broker", "extraArgs")}, "['gold']",
		},
		"unless the classes are named": {
			[]func(map[string]any){set([]any{"gpu", "broker"}, "guard", "classes")}, "['gpu','broker']",
		},
		"or it is every class":               {[]func(map[string]any){set([]any{"*"}, "guard", "classes")}, ""},
		"without the aggregator every class": {[]func(map[string]any){set(false, "services", "aggregator")}, ""},
		"unless they are named": {
			[]func(map[string]any){set(false, "services", "aggregator"), set([]any{"gpu"}, "guard", "classes")}, "['gpu']",
		},
	} {
		t.Run(name, func(t *testing.T) {
			values := runtime.DeepCopyJSON(Values(All))
			for _, change := range tc.changes {
				change(values)
			}
			objects, err := here.RenderedWith(Namespace, values)
			require.NoError(t, err)
			require.Equal(t, tc.classes != "", has(objects, "ValidatingAdmissionPolicy", "liqo-broker-classes"))
			if tc.classes != "" {
				policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy",
					"liqo-broker-classes")
				require.Equal(t, tc.classes, policy.Spec.Variables[0].Expression)
			}
		})
	}
}
