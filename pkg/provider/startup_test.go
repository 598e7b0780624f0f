package provider

import (
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
)

func TestConfigurationsAreReadWhereThatIsAllowed(t *testing.T) {
	for name, test := range map[string]struct {
		verbs map[string]bool
		want  bool
	}{
		"as in Liqo v1.2.0":    {map[string]bool{"list": true, "watch": true}, true},
		"a list is not enough": {map[string]bool{"list": true}, false},
		"as in later versions": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "selfsubjectaccessreviews", func(action k8stesting.Action) (bool, runtime.Object, error) {
				review := action.(k8stesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
				asked := review.Spec.ResourceAttributes
				review.Status.Allowed = asked.Group == "networking.liqo.io" && asked.Resource == "configurations" && test.verbs[asked.Verb]
				return true, review, nil
			})
			allowed, err := mayReadConfigurations(t.Context(), client)
			require.NoError(t, err)
			require.Equal(t, test.want, allowed)
		})
	}
}

// Liqo v1.3.0 is not a dependency: its status is written as its API has it.
func TestTheEffectivePatchOfAVirtualNodeCounts(t *testing.T) {
	spec := map[string]any{"labelsNotReflected": []any{"spec.example.org/l"}}
	merged := map[string]any{
		"labelsNotReflected": []any{"spec.example.org/l", "template.example.org/l"}, "annotationsNotReflected": []any{"a"},
		"nodeSelector": map[string]any{"disk": "ssd"},
	}
	for name, tc := range map[string]struct {
		object map[string]any
		want   *offloadingv1beta1.OffloadingPatch
	}{
		"of Liqo v1.2.0": {
			map[string]any{"spec": map[string]any{"offloadingPatch": spec}},
			&offloadingv1beta1.OffloadingPatch{LabelsNotReflected: []string{"spec.example.org/l"}},
		},
		"of Liqo v1.3.0": {
			map[string]any{"spec": map[string]any{"offloadingPatch": spec}, "status": map[string]any{"effectiveOffloadingPatch": merged}},
			&offloadingv1beta1.OffloadingPatch{
				LabelsNotReflected: []string{"spec.example.org/l", "template.example.org/l"}, AnnotationsNotReflected: []string{"a"},
				NodeSelector: map[string]string{"disk": "ssd"},
			},
		},
		"with nothing to patch": {map[string]any{"spec": map[string]any{}, "status": map[string]any{}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			vn, err := virtualNodeOf(&unstructured.Unstructured{Object: tc.object})
			require.NoError(t, err)
			require.Equal(t, tc.want, vn.Spec.OffloadingPatch)
		})
	}
	_, err := virtualNodeOf(&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"effectiveOffloadingPatch": "x"}}})
	require.Error(t, err)
}
