package orchestrator

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func api(t require.TestingT, funcs interceptor.Funcs, objects ...client.Object) client.WithWatch {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

// After any changes every consumer has its own last selection.
func TestWhatIsSetIsGot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var objects []client.Object
		only := rapid.Bool().Draw(t, "c2 names the only ones")
		want := map[string]map[string]bool{"c1": {}, "c2": {}}
		if only {
			policy := fresh("c2")
			policy.Spec.Selection.Mode = v1alpha1.SelectOnly
			objects = append(objects, policy)
		}
		for _, provider := range []string{"p1", "p2", "p3"} {
			want["c1"][provider], want["c2"][provider] = true, !only
		}
		c := api(t, interceptor.Funcs{}, objects...)
		for range rapid.IntRange(0, 12).Draw(t, "toggles") {
			consumer := rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "consumer")
			provider := rapid.SampledFrom([]string{"p1", "p2", "p3"}).Draw(t, "provider")
			enabled := rapid.Bool().Draw(t, "enabled")
			require.NoError(t, Set(context.Background(), c, consumer, provider, enabled))
			want[consumer][provider] = enabled
		}
		for consumer, choices := range want {
			got, err := Get(context.Background(), c, consumer)
			require.NoError(t, err)
			for provider, enabled := range choices {
				require.Equal(t, enabled, got.Has(provider), "%s %s", consumer, provider)
			}
		}
	})
}

func TestWritesAtTheSameMomentAreNotLost(t *testing.T) {
	// Another client writes between our read and our write: first when there is no policy yet, then when there is.
	others, busy := []string{"p2", "p3"}, false
	var c client.WithWatch
	meanwhile := func(ctx context.Context) {
		if busy || len(others) == 0 {
			return
		}
		provider := others[0]
		others, busy = others[1:], true
		require.NoError(t, Set(ctx, c, "c1", provider, false))
		busy = false
	}
	c = api(t, interceptor.Funcs{
		Create: func(ctx context.Context, under client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			meanwhile(ctx)
			return under.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, under client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			meanwhile(ctx)
			return under.Update(ctx, o, opts...)
		},
	})
	require.NoError(t, Set(t.Context(), c, "c1", "p1", false))
	got, err := Get(t.Context(), c, "c1")
	require.NoError(t, err)
	require.Equal(t, []string{"p1", "p2", "p3"}, got.Providers)
	require.Empty(t, others)
}

func TestAConflictThatLastsIsAnError(t *testing.T) {
	tries := 0
	c := api(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		tries++
		return kerrors.NewConflict(schema.GroupResource{Resource: "placementpolicies"}, "selection-c1", nil)
	}})
	require.True(t, kerrors.IsConflict(Set(t.Context(), c, "c1", "p1", false)))
	require.Greater(t, tries, 1)
}

// client-go's retry returns no error when the function returns the error of a context.
func TestAWriteWithoutAnAnswerIsAnError(t *testing.T) {
	c := api(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return context.DeadlineExceeded
	}})
	require.ErrorIs(t, Set(t.Context(), c, "c1", "p1", false), context.DeadlineExceeded)
}

func TestNothingIsWrittenWithoutNeed(t *testing.T) {
	c := api(t, interceptor.Funcs{})
	require.NoError(t, Set(t.Context(), c, "c1", "p1", true))
	require.True(t, kerrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Name: PolicyName("c1")}, &v1alpha1.PlacementPolicy{})))
}

func TestWhatIsNoSelectionIsNotTouched(t *testing.T) {
	for name, policy := range map[string]*v1alpha1.PlacementPolicy{
		"another policy": {Spec: v1alpha1.PlacementPolicySpec{Consumers: []string{"c1"}}},
		"one of several": {Spec: v1alpha1.PlacementPolicySpec{Consumers: []string{"c1", "c2"}, Selection: &v1alpha1.Selection{}}},
		"one of another": {Spec: v1alpha1.PlacementPolicySpec{Consumers: []string{"c2"}, Selection: &v1alpha1.Selection{}}},
	} {
		t.Run(name, func(t *testing.T) {
			policy.ObjectMeta = metav1.ObjectMeta{Name: PolicyName("c1")}
			c := api(t, interceptor.Funcs{}, policy)
			require.ErrorIs(t, Set(t.Context(), c, "c1", "p1", false), ErrNameTaken)
			_, err := Get(t.Context(), c, "c1")
			require.Error(t, err)
		})
	}
}

func TestNamesThatAreNoClusterIDsAreRefused(t *testing.T) {
	c := api(t, interceptor.Funcs{})
	for _, bad := range []string{"", "A", "a/b", "a.b", "-"} {
		require.ErrorContains(t, Set(t.Context(), c, bad, "p1", false), "is not a cluster id")
		require.ErrorContains(t, Set(t.Context(), c, "c1", bad, false), "is not a cluster id")
		_, err := Get(t.Context(), c, bad)
		require.ErrorContains(t, err, "is not a cluster id")
	}
}
