package kubectl

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The commands need exactly the rights in the documentation.
func TestRights(t *testing.T) {
	for name, tc := range map[string]struct {
		do    func(context.Context, *Session) error
		calls string
	}{
		"get providers": {
			func(ctx context.Context, s *Session) error { return s.GetProviders(ctx, Query{}) },
			"list ProviderCluster",
		},
		"get providers NAME": {
			func(ctx context.Context, s *Session) error { return s.GetProviders(ctx, Query{Names: []string{"p1"}}) },
			"get ProviderCluster",
		},
		"get providers --consumer": {
			func(ctx context.Context, s *Session) error { return s.GetProviders(ctx, Query{Consumer: "c1"}) },
			"get ForeignCluster, list PlacementPolicy, list ProviderCluster",
		},
		"get placements": {
			func(ctx context.Context, s *Session) error { return s.GetPlacements(ctx, Query{Node: "broker"}) },
			"get Namespace, list Pod",
		},
		"get placements NAME": {
			func(ctx context.Context, s *Session) error {
				return s.GetPlacements(ctx, Query{Node: "broker", Names: []string{"a"}})
			},
			"get Namespace, get Pod",
		},
		"get placements -A": {
			func(ctx context.Context, s *Session) error {
				return s.GetPlacements(ctx, Query{Node: "broker", AllNamespaces: true})
			},
			"list Namespace, list Pod",
		},
		"explain": {
			func(ctx context.Context, s *Session) error { return s.Explain(ctx, "broker", "a", outputTable) },
			"get Namespace, get Pod, list Namespace, list NamespaceMap, list PlacementPolicy, list Pod, list ProviderCluster, " +
				"list VirtualNode",
		},
		"disable": {
			func(ctx context.Context, s *Session) error { return s.Enable(ctx, []string{"p1"}, false) },
			"get ProviderCluster, patch ProviderCluster",
		},
		"disable --consumer": {
			func(ctx context.Context, s *Session) error { return s.Select(ctx, "c1", []string{"p1"}, false) },
			"create PlacementPolicy, get ForeignCluster, get PlacementPolicy, get ProviderCluster",
		},
		"drain": {
			func(ctx context.Context, s *Session) error {
				return s.Drain(ctx, []string{"p1"}, DrainOptions{Wait: true})
			},
			"get ProviderCluster, patch ProviderCluster",
		},
		"drain --dry-run": {
			func(ctx context.Context, s *Session) error {
				return s.PreviewDrain(ctx, "broker", []string{"p1"}, outputTable)
			},
			"get Namespace, get ProviderCluster, list Namespace, list NamespaceMap, list PlacementPolicy, list Pod, " +
				"list ProviderCluster, list VirtualNode",
		},
		"drain --wait=false": {
			func(ctx context.Context, s *Session) error {
				return s.Drain(ctx, []string{"p1"}, DrainOptions{})
			},
			"get ProviderCluster, patch ProviderCluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := &calls{}
				s, _ := at(t, asked.funcs(), provider("p1"), placed("a", "p1"), consumers("ns", "c1"),
					&liqov1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}})
				end := begin(t, func(ctx context.Context) error { return tc.do(ctx, s) })
				if err := end(); err != nil {
					require.ErrorContains(t, err, "interrupted")
				}
				slices.Sort(asked.made)
				require.Equal(t, tc.calls, strings.Join(asked.made, ", "))
			})
		})
	}
}
