package providers

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering/peeringtest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/termination"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// A consumer may make NamespaceMaps in its tenant namespace, with any label and status. Such a map of a provider does
// not count: it would redirect logs and exec for the consumer's pods to another consumer's namespace there.
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
	maps, err := peering.NamespaceMaps(t.Context(), c, "p1")
	require.NoError(t, err)
	in := objects{namespaceMaps: maps}
	require.Equal(t, map[string]string{"shop": "shop-broker", "going": "shop-broker"},
		in.spec(&v1alpha1.ProviderCluster{}).RemoteNamespaces)
	translated := placement.Provider(&v1alpha1.ProviderCluster{}, nil, maps)
	require.Equal(t, sets.New("shop"), translated.Namespaces)
}

// The last VirtualNode of a provider is deleted just after an administrator has set its drain, which the cache does not
// show yet.
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
		Client: c, State: state.New(state.Config{Clock: clock.RealClock{}}), Connections: remote.NewConnections(nil, nil, ""),
		Changed: func(context.Context, string) {}, Cleaner: termination.NewCleaner(termination.CleanerConfig{}),
	})
	require.True(t, kerrors.IsConflict(controller.remove(t.Context(), "p1", objects{})))
	cached = nil
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "p1"}, &pc))
	require.True(t, pc.Spec.Drain)
}

// A worker of providers requests the check after an outage, and does not wait for it. A provider that is removed is not
// checked.
func TestAProviderIsCheckedAfterAnOutage(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	virtualNode := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "v1"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1"},
	}
	pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "p1"}, Status: v1alpha1.ProviderClusterStatus{
		Conditions: []metav1.Condition{{Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMovedPodsLeft}},
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(virtualNode, pc, peeringtest.Tenant("p1")).
		WithStatusSubresource(&v1alpha1.ProviderCluster{}).Build()
	known := state.New(state.Config{Clock: clock.RealClock{}})
	const interval = 7 * time.Second
	controller := New(Config{
		Log: testr.New(t), Clock: clock.RealClock{}, Client: c, State: known, Connections: remote.NewConnections(nil, nil, ""),
		Cleaner: termination.NewCleaner(termination.CleanerConfig{State: known, Interval: interval}),
		Queue:   &requeue.Queue{}, Selector: labels.Everything(),
		Changed: func(context.Context, string) {}, Restore: func(context.Context) error { return nil },
	})
	reconcile := func() time.Duration {
		result, err := controller.reconcile(t.Context(), "p1")
		require.NoError(t, err)
		return result.RequeueAfter
	}
	require.Zero(t, reconcile(), "it has not answered yet")
	known.ObserveProbe("p1", state.Probe{Ended: time.Now(), Answered: true})
	require.Equal(t, interval, reconcile())
	require.NoError(t, c.Delete(t.Context(), virtualNode))
	require.Zero(t, reconcile())
}

// A provider without VirtualNodes keeps the settings of an administrator, for when it is back.
func TestSpecsThatAreKept(t *testing.T) {
	require.False(t, administered(&v1alpha1.ProviderClusterSpec{}))
	for _, spec := range []v1alpha1.ProviderClusterSpec{
		{Enabled: ptr.To(false)},
		{Cordoned: true},
		{Drain: true},
		{Attributes: map[string]string{"region": "eu"}},
		{Prices: []v1alpha1.PriceList{{Currency: "EUR"}}},
		{AcceptAdvertisedPrices: true},
	} {
		require.True(t, administered(&spec), "%+v", spec)
	}
}
