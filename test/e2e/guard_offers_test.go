package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// grants checks that a user with the role of a consumer's control plane may write the status of its ResourceSlices, but
// not the grant. The broker and Liqo may write both.
func (g *guarded) grants(t *testing.T) {
	ctx := t.Context()
	consumer := g.likeControlPlane(t, "guard-grants")
	broker, liqo := g.clientAs(t, sandbox.BrokerComponent, sandbox.BrokerComponent), g.clientAs(t, "liqo", "liqo-controller-manager")
	slice := g.replica("guard-grants", "broker")
	require.NoError(t, consumer.Create(ctx, slice))
	// This policy was created together with the one for which the suite waited, but they may take effect at different
	// times.
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		return selfGranted(g.change(ctx, consumer, slice, "status", withGrant("400", "Accepted"), client.DryRunAll))
	})

	assert.NoError(t, selfGranted(g.change(ctx, consumer, slice, "status", withGrant("400", "Accepted"))), "a grant")
	assert.NoError(t, selfGranted(g.change(ctx, consumer, slice, "status", field("400", "status", "resources", "cpu"))),
		"the resources alone")
	require.NoError(t, g.change(ctx, consumer, slice, "status", field(map[string]any{"mine": "yes"}, "status", "nodeLabels")),
		"the rest is not guarded")
	require.NoError(t, g.change(ctx, broker, slice, "status", withGrant("4", "Accepted")))
	assert.NoError(t, selfGranted(g.change(ctx, consumer, slice, "status", withGrant("400", "Accepted"))), "more")
	assert.NoError(t, selfGranted(g.change(ctx, consumer, slice, "status", withGrant("4", "Denied"))), "to be asked again")
	assert.NoError(t, selfGranted(g.change(ctx, consumer, slice, "", field("default", "spec", "class"))), "leave with it")
	require.NoError(t, g.change(ctx, consumer, slice, "", field("8", "spec", "resources", "cpu")), "it may ask for something else")
	require.NoError(t, g.change(ctx, liqo, slice, "status", withGrant("4", "Denied")), "as Liqo does for tenants that are drained")

	brought := g.replica("guard-brings", "default")
	require.NoError(t, consumer.Create(ctx, brought))
	require.NoError(t, g.change(ctx, consumer, brought, "status", withGrant("400", "Accepted")), "the class is not guarded")
	assert.NoError(t, selfGranted(g.change(ctx, consumer, brought, "", field("broker", "spec", "class"))), "written before")

	require.NoError(t, consumer.Delete(ctx, slice), "what was granted may be given up")
	require.NoError(t, consumer.Delete(ctx, brought))
}

// quantities checks that the guard rejects quantities that take hours to parse. Dry runs, because Liqo would parse them
// first.
func (g *guarded) quantities(t *testing.T) {
	ctx := t.Context()
	consumer := g.likeControlPlane(t, "guard-quantities")
	slice := g.replica("guard-quantities", "default")
	require.NoError(t, consumer.Create(ctx, slice))
	for _, quantity := range []string{"1e-2000000000", "1E2000000000", strings.Repeat("9", 31)} {
		created := g.replica("guard-created", "default")
		require.NoError(t, unstructured.SetNestedField(created.Object, quantity, "spec", "resources", "memory"))
		assert.NoError(t, unreadable(consumer.Create(ctx, created, client.DryRunAll)), "create %s", quantity)
		assert.NoError(t, unreadable(g.change(ctx, consumer, slice, "", field(quantity, "spec", "resources", "memory"), client.DryRunAll)),
			"update %s", quantity)
		assert.NoError(t, unreadable(g.change(ctx, consumer, slice, "status", field(quantity, "status", "resources", "memory"),
			client.DryRunAll)), "status %s", quantity)
	}
	for _, quantity := range []any{"1e3", "1500m", "2Ei", int64(7)} {
		assert.NoError(t, g.change(ctx, consumer, slice, "", field(quantity, "spec", "resources", "memory")), "%v", quantity)
	}
	many := map[string]any{}
	for i := range 2000 {
		many[fmt.Sprint("example.org/", i)] = "1"
	}
	assert.ErrorContains(t, g.change(ctx, consumer, slice, "", field(many, "spec", "resources"), client.DryRunAll),
		"a ResourceSlice may name 200 resources")
	require.NoError(t, consumer.Delete(ctx, slice))
}

// replica returns a replicated ResourceSlice that Liqo ignores: it requests no certificate, and its origin is unknown
// to the consumer's replicator. The policy liqo-broker-slices therefore lets no peer write it.
func (g *guarded) replica(name, class string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"class": class, "consumerClusterID": g.consumer.Name, "resources": map[string]any{"cpu": "400"},
	}}}
	o.SetGroupVersionKind(authv1beta1.GroupVersion.WithKind(authv1beta1.ResourceSliceKind))
	o.SetNamespace("liqo-tenant-" + g.consumer.Name)
	o.SetName(name)
	o.SetLabels(map[string]string{"liqo.io/replicated": "true", "liqo.io/originID": "nowhere"})
	return o
}

func field(value any, path ...string) func(map[string]any) error {
	return func(o map[string]any) error { return unstructured.SetNestedField(o, value, path...) }
}

// withGrant returns a change that gives a slice a grant of cpu with a verdict.
func withGrant(cpu, verdict string) func(map[string]any) error {
	return func(o map[string]any) error {
		return unstructured.SetNestedMap(o, map[string]any{
			"resources": map[string]any{"cpu": cpu},
			"conditions": []any{map[string]any{
				"type": "Resources", "status": verdict, "lastTransitionTime": "2000-01-01T00:00:00Z",
			}},
		}, "status")
	}
}

// change changes the current slice with a client.
func (g *guarded) change(ctx context.Context, by client.Client, slice *unstructured.Unstructured, subresource string,
	how func(map[string]any) error, dryRun ...client.SubResourceUpdateOption,
) error {
	now := slice.DeepCopy()
	if err := g.broker.Client.Get(ctx, client.ObjectKeyFromObject(slice), now); err != nil {
		return err
	}
	if err := how(now.Object); err != nil {
		return err
	}
	if subresource != "" {
		return by.SubResource(subresource).Update(ctx, now, dryRun...)
	}
	if len(dryRun) > 0 {
		return by.Update(ctx, now, client.DryRunAll)
	}
	return by.Update(ctx, now)
}

// selfGranted returns nil if the guard rejected a grant with err.
func selfGranted(err error) error {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only the broker may decide what a ResourceSlice is granted") {
		return fmt.Errorf("not refused by the guard: %w", err)
	}
	return nil
}

// unreadable returns nil if the guard rejected a quantity with err.
func unreadable(err error) error {
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "the quantity of memory may have 30 digits") {
		return fmt.Errorf("not refused by the guard: %w", err)
	}
	return nil
}

// controlPlaneAtBroker returns a client with the kubeconfig that the broker issued to the consumer's control plane.
func (g *guarded) controlPlaneAtBroker(t *testing.T) client.Client {
	t.Helper()
	return g.client(t, identityOf(t, g.consumer, authv1beta1.ControlPlaneIdentityType))
}

// likeControlPlane returns a client with the role of the consumer's control plane that no policy recognises as a peer.
func (g *guarded) likeControlPlane(t *testing.T, user string) client.Client {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: "liqo-tenant-" + g.consumer.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
	}
	require.NoError(t, g.broker.Client.Create(t.Context(), binding))
	t.Cleanup(func() { require.NoError(t, g.broker.Client.Delete(context.Background(), binding)) })
	config, err := g.broker.ClientConfig(user)
	require.NoError(t, err)
	as := g.client(t, config)
	// The authorizer sees the binding through a watch.
	eventually(t, 10*time.Second, func(ctx context.Context) error {
		var list authv1beta1.ResourceSliceList
		return as.List(ctx, &list, client.InNamespace(binding.Namespace))
	})
	return as
}

// clientAs returns a client of the broker's cluster for a ServiceAccount.
func (g *guarded) clientAs(t *testing.T, namespace, name string) client.Client {
	t.Helper()
	return g.client(t, g.impersonating(namespace, name))
}

func (g *guarded) client(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: g.broker.Client.Scheme(), Mapper: g.broker.Client.RESTMapper()})
	require.NoError(t, err)
	return c
}
