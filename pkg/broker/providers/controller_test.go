package providers

import (
	"context"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// A consumer may make NamespaceMaps in its tenant namespace, with any label and status. Such a map of a
// provider does not count: it would redirect logs and exec for the consumer's pods to another consumer's namespace there.
func TestNamespaceMapsOfOthersDoNotCount(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	namespace := func(name, cluster, isTenant string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			consts.RemoteClusterID: cluster, consts.TenantNamespaceLabel: isTenant,
		}}}
	}
	mapOf := func(in, local string, phase offloadingv1beta1.MappingPhase) *offloadingv1beta1.NamespaceMap {
		return &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "map-" + local, Labels: map[string]string{consts.RemoteClusterID: "p1"}},
			Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{local: "shop-broker"}},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				local: {RemoteNamespace: "shop-broker", Phase: phase},
			}},
		}
	}
	received := mapOf("liqo-tenant-p1", "theirs", offloadingv1beta1.MappingAccepted) // p1 is a consumer, too.
	received.Labels[consts.ReplicationOriginLabel] = "p1"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		namespace("liqo-tenant-p1", "p1", "true"), mapOf("liqo-tenant-p1", "shop", offloadingv1beta1.MappingAccepted), received,
		namespace("tenant-too", "p1", "true"), mapOf("tenant-too", "going", offloadingv1beta1.MappingTerminating),
		namespace("liqo-tenant-evil", "evil", "true"), mapOf("liqo-tenant-evil", "evil", offloadingv1beta1.MappingAccepted),
		namespace("offloaded-by-p1", "p1", "false"), mapOf("offloaded-by-p1", "no-tenant", offloadingv1beta1.MappingAccepted),
		mapOf("gone", "gone", offloadingv1beta1.MappingAccepted),
	).Build()
	maps, err := namespaceMaps(t.Context(), c, "p1")
	require.NoError(t, err)
	in := objects{namespaceMaps: maps}
	require.Equal(t, map[string]string{"shop": "shop-broker", "going": "shop-broker"}, in.spec(&v1alpha1.ProviderCluster{}).RemoteNamespaces)
	translated := placement.Provider(&v1alpha1.ProviderCluster{}, nil, maps)
	require.Equal(t, sets.New("shop"), translated.Namespaces)
}

// A peer can have a VirtualNode made in its tenant namespace, with a kubeconfig of its own, and with the id of a provider.
func TestVirtualNodesOutsideOfTheProvidersTenantNamespaceDoNotCount(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	virtualNode := func(namespace, name string) client.Object {
		return &offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1"},
		}
	}
	controller := New(Config{Selector: labels.Everything(), Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		tenantOf("p1"), virtualNode("liqo-tenant-p1", "own"), tenantOf("evil"), virtualNode("liqo-tenant-evil", "forged"),
		virtualNode("default", "stray"),
	).Build()})
	own, _, err := controller.virtualNodes(t.Context(), "p1")
	require.NoError(t, err)
	require.Len(t, own, 1)
	require.Equal(t, "own", own[0].Name)
}

// tenantOf is the tenant namespace of a cluster.
func tenantOf(id string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + id, Labels: map[string]string{
		consts.RemoteClusterID: id, consts.TenantNamespaceLabel: "true",
	}}}
}

// The last VirtualNode of a provider is deleted just after an administrator has set its drain, which the cache does not show yet.
func TestADrainThatTheCacheDoesNotShowYetIsKept(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	var cached *v1alpha1.ProviderCluster
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "p1"}}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, at client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
				if pc, is := into.(*v1alpha1.ProviderCluster); is && cached != nil {
					cached.DeepCopyInto(pc)
					return nil
				}
				return at.Get(ctx, key, into, opts...)
			},
		}).Build()
	var pc v1alpha1.ProviderCluster
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "p1"}, &pc))
	cached = pc.DeepCopy()
	pc.Spec.Drain = true
	require.NoError(t, c.Update(t.Context(), &pc))
	controller := New(Config{
		Client: c, Belief: belief.New(belief.Config{Clock: clock.RealClock{}}), Connections: remote.NewConnections(nil, nil, ""),
		Changed: func(context.Context, string) {},
	})
	require.True(t, kerrors.IsConflict(controller.remove(t.Context(), "p1", objects{})))
	cached = nil
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "p1"}, &pc))
	require.True(t, pc.Spec.Drain)
}

// A leader that begins when a VirtualNode is gone has read no kubeconfig of its provider.
func TestAProviderWithoutAVirtualNodeIsConnectedWith(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-p1", Labels: map[string]string{
		consts.RemoteClusterID: "p1", consts.TenantNamespaceLabel: "true",
	}}}
	left := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenant.Name, Name: "p1", Labels: map[string]string{consts.RemoteClusterID: "p1"},
	}}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name, Name: "kubeconfig-resourceslice-gone"},
		Data: map[string][]byte{consts.KubeconfigSecretField: []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
`)},
	}
	home := kubefake.NewClientset(secret)
	gone := Gone{
		Log: testr.New(t), Clock: clock.RealClock{},
		Client:      fake.NewClientBuilder().WithScheme(scheme).WithObjects(tenant, left).Build(),
		Connections: remote.NewConnections(home, identitymanager.NewCertificateIdentityReader(t.Context(), nil, home, nil, "", nil), ""),
	}
	require.Nil(t, gone.Connect(t.Context(), scheduler.Place{VirtualNode: "gone"}), "it is not known whose it was")
	other := scheduler.Place{Provider: "p1", VirtualNode: "other"}
	require.Nil(t, gone.Connect(t.Context(), other), "it has no Secret")
	connection := gone.Connect(t.Context(), scheduler.Place{Provider: "p1", VirtualNode: "gone"})
	require.NotNil(t, connection)
	require.Equal(t, "p1", connection.Provider)
	require.Same(t, connection, gone.Connect(t.Context(), other), "with that of another VirtualNode of the provider")
	require.Nil(t, gone.Connect(t.Context(), scheduler.Place{Provider: "p2", VirtualNode: "gone"}))
}
