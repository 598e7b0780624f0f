package kubectl

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl/check"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// The commands need exactly the rights in the documentation.
func TestRights(t *testing.T) {
	for name, tc := range map[string]struct {
		do    func(context.Context, *Session) error
		calls string
		// command is the name of the command in check.Commands; "" if it is not there.
		command string
	}{
		"get providers": {
			func(ctx context.Context, s *Session) error { return s.GetProviders(ctx, Query{}) },
			"list ProviderCluster",
			"get",
		},
		"get providers NAME": {
			func(ctx context.Context, s *Session) error { return s.GetProviders(ctx, Query{Names: []string{"p1"}}) },
			"get ProviderCluster",
			"get",
		},
		"get providers --consumer": {
			func(ctx context.Context, s *Session) error { return s.GetProviders(ctx, Query{Consumer: "c1"}) },
			"get ForeignCluster, list PlacementPolicy, list ProviderCluster",
			"get",
		},
		"get policies": {
			func(ctx context.Context, s *Session) error { return s.GetPolicies(ctx, Query{}) },
			"list PlacementPolicy",
			"get",
		},
		"get policies NAME": {
			func(ctx context.Context, s *Session) error {
				return s.GetPolicies(ctx, Query{Names: []string{"p"}})
			},
			"get PlacementPolicy",
			"get",
		},
		"get consumers": {
			func(ctx context.Context, s *Session) error { return s.GetConsumers(ctx, Query{}) },
			"list ConsumerCluster",
			"get",
		},
		"get placements": {
			func(ctx context.Context, s *Session) error { return s.GetPlacements(ctx, Query{Node: "broker"}) },
			"get Namespace, list Pod",
			"get",
		},
		"get placements NAME": {
			func(ctx context.Context, s *Session) error {
				return s.GetPlacements(ctx, Query{Node: "broker", Names: []string{"a"}})
			},
			"get Namespace, get Pod",
			"get",
		},
		"get placements -A": {
			func(ctx context.Context, s *Session) error {
				return s.GetPlacements(ctx, Query{Node: "broker", AllNamespaces: true})
			},
			"list Namespace, list Pod",
			"get",
		},
		"explain": {
			func(ctx context.Context, s *Session) error { return s.Explain(ctx, "broker", "a", outputTable) },
			"get Namespace, get Pod, list Namespace, list NamespaceMap, list PlacementPolicy, list Pod, list ProviderCluster, " +
				"list VirtualNode",
			"explain",
		},
		"check": {
			func(ctx context.Context, s *Session) error { return s.Check(ctx, &CheckOptions{Node: "broker"}) },
			"create SelfSubjectAccessReview, get CustomResourceDefinition, get Lease, get Node, list Deployment, list Identity, " +
				"list ProviderCluster, list ValidatingAdmissionPolicy, list ValidatingAdmissionPolicyBinding, list VirtualNode, " +
				"list VkOptionsTemplate",
			"",
		},
		"disable": {
			func(ctx context.Context, s *Session) error { return s.Enable(ctx, []string{"p1"}, false) },
			"get ProviderCluster, patch ProviderCluster",
			"drain",
		},
		"disable --consumer": {
			func(ctx context.Context, s *Session) error { return s.Select(ctx, "c1", []string{"p1"}, false) },
			"create PlacementPolicy, get ForeignCluster, get PlacementPolicy, get ProviderCluster",
			"enable-consumer",
		},
		"drain": {
			func(ctx context.Context, s *Session) error {
				return s.Drain(ctx, []string{"p1"}, DrainOptions{Wait: true})
			},
			"get ProviderCluster, patch ProviderCluster",
			"drain",
		},
		"drain --dry-run": {
			func(ctx context.Context, s *Session) error {
				return s.PreviewDrain(ctx, "broker", []string{"p1"}, outputTable)
			},
			"get Namespace, get ProviderCluster, list Namespace, list NamespaceMap, list PlacementPolicy, list Pod, " +
				"list ProviderCluster, list VirtualNode",
			"drain-dry-run",
		},
		"drain --wait=false": {
			func(ctx context.Context, s *Session) error {
				return s.Drain(ctx, []string{"p1"}, DrainOptions{})
			},
			"get ProviderCluster, patch ProviderCluster",
			"drain",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := &calls{}
				s, _ := at(t, asked.funcs(), provider("p1"), placed("a", "p1"), consumers("ns", "c1"),
					&liqov1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}})
				end := begin(t, func(ctx context.Context) error { return tc.do(ctx, s) })
				// Nothing is installed, and there is no policy.
				if err := end(); err != nil && name != "check" && name != "get policies NAME" {
					require.ErrorContains(t, err, "interrupted")
				}
				slices.Sort(asked.made)
				require.Equal(t, tc.calls, strings.Join(asked.made, ", "))
				requireRights(t, tc.command, asked.made)
			})
		})
	}
}

// requireRights requires that check asks for the rights of requests, and that NewMapper has their kinds.
func requireRights(t *testing.T, command string, requests []string) {
	t.Helper()
	mapper := NewMapper()
	if command == "" {
		for _, request := range requests {
			mappingOf(t, mapper, strings.Fields(request)[1])
		}
		return
	}
	at := slices.IndexFunc(check.Commands(), func(c check.Command) bool { return c.Name == command })
	require.GreaterOrEqual(t, at, 0, command)
	for _, request := range requests {
		verb, kind, _ := strings.Cut(request, " ")
		resource := mappingOf(t, mapper, kind)
		require.Contains(t, check.Commands()[at].Rights, check.Right{Verb: verb, Group: resource.Group, Resource: resource.Resource})
	}
}

// mappingOf returns the resource of a kind of any group.
func mappingOf(t *testing.T, mapper meta.RESTMapper, kind string) schema.GroupVersionResource {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	for known := range scheme.AllKnownTypes() {
		if known.Kind != kind {
			continue
		}
		if found, err := mapper.RESTMapping(known.GroupKind(), known.Version); err == nil {
			return found.Resource
		}
	}
	require.Fail(t, "not in NewMapper: "+kind)
	return schema.GroupVersionResource{}
}
