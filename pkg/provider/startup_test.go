package provider

import (
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
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
