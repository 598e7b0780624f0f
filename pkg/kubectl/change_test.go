package kubectl

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/orchestrator"
)

// Each verb changes one field, and enable and uncordon warn about settings that still keep new pods away.
func TestChanges(t *testing.T) {
	off, on := false, true
	const p1 = "providercluster.brokering.liqo.io/p1 "
	enable := func(ctx context.Context, s *Session) error { return s.Enable(ctx, []string{"p1"}, true) }
	disable := func(ctx context.Context, s *Session) error { return s.Enable(ctx, []string{"p1"}, false) }
	cordon := func(ctx context.Context, s *Session) error { return s.Cordon(ctx, []string{"p1"}) }
	uncordon := func(ctx context.Context, s *Session) error { return s.Uncordon(ctx, []string{"p1"}) }
	type spec = v1alpha1.ProviderClusterSpec
	for name, tc := range map[string]struct {
		before spec
		do     func(context.Context, *Session) error
		after  spec
		output []string
	}{
		"disable one without the field": {spec{}, disable, spec{Enabled: &off}, []string{p1 + "disabled"}},
		"disable a disabled one":        {spec{Enabled: &off}, disable, spec{Enabled: &off}, []string{p1 + "already disabled"}},
		"disable keeps the attributes": {
			spec{Attributes: map[string]string{"region": "eu"}},
			disable,
			spec{Enabled: &off, Attributes: map[string]string{"region": "eu"}},
			[]string{p1 + "disabled"},
		},
		"enable": {spec{Enabled: &off}, enable, spec{Enabled: &on}, []string{p1 + "enabled"}},
		"enable does not end a drain": {spec{Enabled: &off, Drain: true}, enable, spec{Enabled: &on, Drain: true}, []string{
			p1 + "enabled", "warning: p1 gets no new pods: it is drained until 'kubectl broker uncordon'",
		}},
		"enable does not end a cordon": {spec{Cordoned: true}, enable, spec{Cordoned: true}, []string{
			p1 + "already enabled", "warning: p1 gets no new pods: it is cordoned until 'kubectl broker uncordon'",
		}},
		"cordon":                         {spec{}, cordon, spec{Cordoned: true}, []string{p1 + "cordoned"}},
		"cordon a cordoned one":          {spec{Cordoned: true}, cordon, spec{Cordoned: true}, []string{p1 + "already cordoned"}},
		"uncordon ends cordon and drain": {spec{Cordoned: true, Drain: true}, uncordon, spec{}, []string{p1 + "uncordoned"}},
		"uncordon ends a drain":          {spec{Drain: true}, uncordon, spec{}, []string{p1 + "uncordoned"}},
		"uncordon does not enable": {spec{Enabled: &off, Drain: true}, uncordon, spec{Enabled: &off}, []string{
			p1 + "uncordoned", "warning: p1 gets no new pods: it is disabled until 'kubectl broker enable'",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pc := provider("p1")
			pc.Spec = tc.before
			s, screen := at(t, interceptor.Funcs{}, pc)
			require.NoError(t, tc.do(t.Context(), s))
			require.Equal(t, tc.output, screen.lines())
			var after v1alpha1.ProviderCluster
			require.NoError(t, s.Client.Get(t.Context(), client.ObjectKeyFromObject(pc), &after))
			require.Equal(t, tc.after, after.Spec)
		})
	}
}

func TestSelect(t *testing.T) {
	off := false
	disabled := provider("p2")
	disabled.Spec.Enabled = &off
	s, screen := at(t, interceptor.Funcs{}, provider("p1"), disabled,
		&liqov1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}})
	both := []string{"p1", "p2", "p9"}
	missing := []string{`Error from server (NotFound): providerclusters.brokering.liqo.io "p9" not found`}

	require.Equal(t, missing, Words(s.Select(t.Context(), "c1", both, false)))
	require.Equal(t, missing, Words(s.Select(t.Context(), "c1", both, false)))
	require.Equal(t, missing, Words(s.Select(t.Context(), "c1", both, true)))
	const p1, p2 = "providercluster.brokering.liqo.io/p1 ", "providercluster.brokering.liqo.io/p2 "
	require.Equal(t, []string{
		p1 + "disabled for c1", p2 + "disabled for c1", p1 + "already disabled for c1", p2 + "already disabled for c1",
		p1 + "enabled for c1", p2 + "enabled for c1", "warning: p2 gets no new pods: it is disabled until 'kubectl broker enable'",
	}, screen.lines())

	var pc v1alpha1.ProviderCluster
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Name: "p1"}, &pc))
	require.Nil(t, pc.Spec.Enabled, "the provider itself is not changed")
	require.True(t, kerrors.IsNotFound(s.Select(t.Context(), "c9", []string{"p1"}, false)), "a wrong name is noticed")
	require.True(t, kerrors.IsNotFound(s.GetProviders(t.Context(), Query{Consumer: "c9"})), "and here, too")
	require.Empty(t, screen.lines())
	require.NoError(t, s.GetProviders(t.Context(), Query{Consumer: "c1"}))
}

func TestSelectWithoutRightsToForeignClusters(t *testing.T) {
	s, _ := at(t, interceptor.Funcs{
		Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*liqov1beta1.ForeignCluster); ok {
				return kerrors.NewForbidden(schema.GroupResource{Resource: "foreignclusters"}, key.Name, errors.New("no"))
			}
			return under.Get(ctx, key, o, opts...)
		},
	}, provider("p1"))
	require.NoError(t, s.Select(t.Context(), "c1", []string{"p1"}, false))
	chosen, err := orchestrator.Get(t.Context(), s.Client, "c1")
	require.NoError(t, err)
	require.False(t, chosen.Has("p1"))
	require.NoError(t, s.GetProviders(t.Context(), Query{Consumer: "c1"}))
}
