package isolation

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// tenant is the tenant namespace of a peer.
func tenant(peer string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "liqo-tenant-" + peer, Labels: map[string]string{consts.RemoteClusterID: peer, consts.TenantNamespaceLabel: "true"},
	}}
}

// namespaceOf is a namespace that a consumer has offloaded to this cluster.
func namespaceOf(consumer, name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{consts.RemoteClusterID: consumer},
		Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant-" + consumer + "/" + consumer},
	}}
}

func ipOf(namespace, name, leadsTo, address string) *ipamv1alpha1.IP {
	return &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(leadsTo)},
		Status:     ipamv1alpha1.IPStatus{IP: networkingv1beta1.IP(address)},
	}
}

func network(kind consts.NetworkType, cidr string) *ipamv1alpha1.Network {
	return &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo", Name: string(kind), Labels: map[string]string{consts.NetworkTypeLabelKey: string(kind)},
		},
		Status: ipamv1alpha1.NetworkStatus{CIDR: networkingv1beta1.CIDR(cidr)},
	}
}

// fixture is a Controller with the objects of a cluster.
type fixture struct {
	*Controller
	client client.Client
	clock  *clocktesting.FakeClock
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	cl := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	c := New(Config{Log: logr.Discard(), Client: cl, Enabled: true, NodeName: "broker", Clock: clk, Metrics: NewMetrics(nil)})
	c.local = cl
	return &fixture{Controller: c, client: cl, clock: clk}
}

func cluster(consumer string) []client.Object {
	return []client.Object{
		tenant(consumer), namespaceOf(consumer, "ns"), network(consts.NetworkTypePodCIDR, "10.244.0.0/16"),
		network(consts.NetworkTypeExternalCIDR, "10.70.0.0/16"), ipOf("ns", "web", "10.65.3.5", "10.70.0.6"),
	}
}

func (f *fixture) reconcile(t *testing.T, consumer string) ctrl.Result {
	t.Helper()
	result, err := f.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tenant(consumer))})
	require.NoError(t, err)
	return result
}

// written returns the object that denies a consumer's traffic, nil if there is none, and the addresses that the
// consumer may open connections to, with their targets.
func (f *fixture) written(t *testing.T, consumer string) (deny *networkingv1beta1.FirewallConfiguration, leads map[string]string) {
	t.Helper()
	var objects networkingv1beta1.FirewallConfigurationList
	require.NoError(t, f.client.List(t.Context(), &objects, client.InNamespace("liqo-tenant-"+consumer)))
	leads = map[string]string{}
	for i := range objects.Items {
		object := &objects.Items[i]
		require.Equal(t, object.Name, *object.Spec.Table.Name)
		if object.Name == tableName {
			deny = object
			continue
		}
		for _, c := range object.Spec.Table.Chains {
			for _, r := range c.Rules.NatRules {
				require.Equal(t, object.Name, nameOfShare(share(netip.MustParseAddr(*r.Name))))
				leads[*r.Name] = *r.To
			}
		}
	}
	return deny, leads
}

func TestAConsumerMayReachItsOwn(t *testing.T) {
	local := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "here"}, Status: corev1.PodStatus{PodIP: "10.244.2.9"}}
	onHost := local.DeepCopy()
	onHost.Name, onHost.Spec.HostNetwork, onHost.Status.PodIP = "on-host", true, "192.168.0.2"
	ended := local.DeepCopy()
	ended.Name, ended.Status = "ended", corev1.PodStatus{PodIP: "10.244.2.10", Phase: corev1.PodSucceeded}
	brokers := local.DeepCopy()
	brokers.Namespace, brokers.Status.PodIP = "own", "10.244.2.11"
	proxy := ipOf("liqo", "api-server-proxy", "10.96.0.9", "10.70.0.1")
	proxy.Labels = map[string]string{consts.IPTypeLabelKey: consts.IPTypeAPIServerProxy}
	shared := ipOf("services", "dns", "10.96.0.10", "10.70.0.2")
	shared.Labels = map[string]string{v1alpha1.ForConsumersLabel: "true"}
	f := newFixture(t, append(cluster("c1"), tenant("c2"), namespaceOf("c2", "other"), local, onHost, ended, brokers, proxy, shared,
		ipOf("other", "web", "10.65.3.6", "10.70.0.7"), ipOf("own", "web", "10.65.3.7", "10.70.0.8"),
		ipOf("liqo", "api-server", "10.96.0.1", "10.70.0.3"), ipOf("liqo-tenant-c1", "unknown", "10.65.3.8", "10.70.0.9"),
		ipOf("ns", "pending", "10.65.3.9", ""), ipOf("ns", "v6", "fd00::1", "fd01::1"))...)
	all := map[string]string{"10.70.0.1": "10.96.0.9", "10.70.0.2": "10.96.0.10"}

	f.reconcile(t, "c1")
	object, leads := f.written(t, "c1")
	require.Equal(t, map[string]string{
		"10.70.0.6": "10.65.3.5", "10.244.2.9": "10.244.2.9", "10.70.0.1": all["10.70.0.1"], "10.70.0.2": all["10.70.0.2"],
	}, leads)
	require.Equal(t, map[string]string{
		"app.kubernetes.io/managed-by": "liqo-broker", "networking.liqo.io/firewall-category": "gateway",
		"networking.liqo.io/firewall-unique": "c1",
	}, object.Labels)

	f.reconcile(t, "c2")
	_, leads = f.written(t, "c2")
	require.Equal(t, map[string]string{"10.70.0.7": "10.65.3.6", "10.70.0.1": all["10.70.0.1"], "10.70.0.2": all["10.70.0.2"]}, leads)
}

func TestAMappingThatEndsIsRemoved(t *testing.T) {
	f := newFixture(t, cluster("c1")...)
	f.reconcile(t, "c1")
	require.NoError(t, f.client.Delete(t.Context(), ipOf("ns", "web", "", "")))
	require.Equal(t, writePause+2*writePauseEach, f.reconcile(t, "c1").RequeueAfter, "a gateway is not made to read its rules all the time")
	_, leads := f.written(t, "c1")
	require.Len(t, leads, 1)
	f.clock.Step(writePause + 2*writePauseEach)
	require.Zero(t, f.reconcile(t, "c1"))
	_, leads = f.written(t, "c1")
	require.Empty(t, leads)
	f.clock.Step(writePause)
	require.Zero(t, f.reconcile(t, "c1"))
}

// TestAnAddressThatAPodLeftIsNotReached: Liqo keeps the IP of a pod for as long as the pod object exists. As soon as
// the pod has ended or lost the address, the provider may assign it to another pod, maybe of another consumer.
func TestAnAddressThatAPodLeftIsNotReached(t *testing.T) {
	mapped, none := map[string]string{"10.70.0.6": "10.65.3.5"}, map[string]string{}
	for name, tc := range map[string]struct {
		status *corev1.PodStatus // nil: there is no pod.
		leads  map[string]string
	}{
		"a pod that runs":                         {&corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.65.3.5"}, mapped},
		"a pod that has succeeded, and is kept":   {&corev1.PodStatus{Phase: corev1.PodSucceeded, PodIP: "10.65.3.5"}, none},
		"a pod that has failed, and is kept":      {&corev1.PodStatus{Phase: corev1.PodFailed, PodIP: "10.65.3.5"}, none},
		"a pod that is made anew at its provider": {&corev1.PodStatus{Phase: corev1.PodPending}, none},
		"a pod whose new address is not mapped":   {&corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.65.3.7"}, none},
		"a pod that is gone, before its IP is":    {nil, none},
	} {
		t.Run(name, func(t *testing.T) {
			objects := cluster("c1")
			ip := objects[len(objects)-1]
			ip.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "1"}})
			var pods []client.Object
			if tc.status != nil {
				pods = append(pods, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: ip.GetName(), UID: "1"}, Status: *tc.status,
				})
			}
			f := newFixture(t, append(objects, pods...)...)
			f.local = newFixture(t).client // The pod is on the broker's node.
			f.reconcile(t, "c1")
			_, leads := f.written(t, "c1")
			require.Equal(t, tc.leads, leads)
			require.Len(t, f.peersOfPod(t.Context(), ip), 1, "its change requeues its consumer")
		})
	}
}

// TestAnAddressForAllIsReachedWhileItsPodHasIt: the pod may be the administrator's, on a virtual node that the broker
// does not watch.
func TestAnAddressForAllIsReachedWhileItsPodHasIt(t *testing.T) {
	shared := ipOf("services", "dns", "10.65.3.9", "10.70.0.2")
	shared.Labels = map[string]string{v1alpha1.ForConsumersLabel: "true"}
	shared.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "dns", UID: "2"}}
	f := newFixture(t, append(cluster("c1")[:4], shared)...)
	f.reconcile(t, "c1")
	_, leads := f.written(t, "c1")
	require.Equal(t, map[string]string{"10.70.0.2": "10.65.3.9"}, leads)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "services", Name: "dns"}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, PodIP: "10.65.3.9"}
	require.NoError(t, f.client.Create(t.Context(), pod))
	f.clock.Step(time.Minute)
	f.reconcile(t, "c1")
	_, leads = f.written(t, "c1")
	require.Empty(t, leads)
}

func TestOnlyChangesOfTheAddressOfAPodAreEvents(t *testing.T) {
	runs := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.65.3.5"}}
	starts, moved, ended := runs.DeepCopy(), runs.DeepCopy(), runs.DeepCopy()
	starts.Status.Phase, moved.Status.PodIP, ended.Status.Phase = corev1.PodPending, "", corev1.PodSucceeded
	for after, want := range map[*corev1.Pod]bool{runs: false, starts: false, moved: true, ended: true} {
		require.Equal(t, want, addressChanged().Update(event.UpdateEvent{ObjectOld: runs, ObjectNew: after}), "%+v", after.Status)
	}
}

func TestWhoIsIsolated(t *testing.T) {
	provider := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-c1", Name: "c1"}}
	provider.Spec.ClusterID = "c1"
	elsewhere := provider.DeepCopy()
	elsewhere.Namespace = "other"
	exempted := tenant("c1")
	exempted.Labels[v1alpha1.IsolateLabel] = "false"
	for name, tc := range map[string]struct {
		objects []client.Object
		enabled bool
		chains  int // -1: there is no object.
	}{
		"a consumer":                            {cluster("c1"), true, 2},
		"not with --isolate-consumers=false":    {cluster("c1"), false, -1},
		"not one that is a provider as well":    {append(cluster("c1"), provider), true, -1},
		"not one that an administrator exempts": {append(cluster("c1")[1:], exempted), true, -1},
		"not a provider by a node in a namespace that it cannot have from Liqo": {append(cluster("c1"), elsewhere), true, 2},
		"not without Liqo's network":      {[]client.Object{tenant("c1"), network(consts.NetworkTypePodCIDR, "")}, true, -1},
		"a consumer that has no pods yet": {append(cluster("c1")[2:4], tenant("c1")), true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tc.objects...)
			f.cfg.Enabled = tc.enabled
			f.reconcile(t, "c1")
			object, _ := f.written(t, "c1")
			if tc.chains < 0 {
				require.Nil(t, object)
				require.Zero(t, testutil.CollectAndCount(f.cfg.Metrics.failed))
				return
			}
			require.Len(t, object.Spec.Table.Chains, tc.chains)
		})
	}
}

func TestTheRulesOfAFormerConsumerAreEmptied(t *testing.T) {
	f := newFixture(t, cluster("c1")...)
	f.reconcile(t, "c1")
	f.cfg.Enabled = false
	f.clock.Step(time.Minute)
	f.reconcile(t, "c1")
	object, leads := f.written(t, "c1")
	require.NotNil(t, object, "gateways keep the rules of an object that is deleted")
	require.Empty(t, object.Spec.Table.Chains)
	require.Empty(t, leads)
}

func TestEventsRequeueThePeer(t *testing.T) {
	f := newFixture(t, append(cluster("c1"), tenant("c2"), namespaceOf("c2", "other"))...)
	require.Len(t, f.peers(t.Context(), ""), 2)
	require.Equal(t, []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(tenant("c2"))}}, f.peersOfNamespace(t.Context(), "other"))
	require.Empty(t, f.peersOfNamespace(t.Context(), "liqo"))
}

func TestWhereAConsumersPacketsMayGo(t *testing.T) {
	provider := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "p1"}}
	provider.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterConfigCIDR{
		Pod: []networkingv1beta1.CIDR{"10.65.0.0/16"}, External: []networkingv1beta1.CIDR{"10.66.0.0/16", "fd00::/8"},
	}}
	connecting := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p2", Name: "p2"}}
	shared := ipOf("services", "dns", "10.96.0.10", "10.70.0.2")
	shared.Labels = map[string]string{v1alpha1.ForConsumersLabel: "true"}
	here := ipOf("services", "web", "10.244.1.1", "10.70.0.3")
	here.Labels = shared.Labels
	f := newFixture(t, append(cluster("c1"), provider, connecting, shared, here)...)
	f.reconcile(t, "c1")
	deny, _ := f.written(t, "c1")
	var accepted []string
	for _, r := range deny.Spec.Table.Chains[1].Rules.FilterRules {
		accepted = append(accepted, *r.Name)
	}
	require.Equal(t, []string{
		"to-the-consumer", "10.65.0.0/16", "10.66.0.0/16", "10.70.0.0/16", "10.96.0.10/32", "10.244.0.0/16",
	}, accepted)
}

// TestAnObjectOfSomebodyElseIsLeftAlone: for each such object, all others are still written, above all the denying one.
func TestAnObjectOfSomebodyElseIsLeftAlone(t *testing.T) {
	taken := nameOfShare(share(netip.MustParseAddr("10.70.0.6")))
	for name, tc := range map[string]struct{ chains, addresses int }{
		tableName: {chains: 0, addresses: 1},
		taken:     {chains: 2, addresses: 0},
	} {
		t.Run(name, func(t *testing.T) {
			cached := 0
			theirs := &networkingv1beta1.FirewallConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-c1", Name: name}}
			theirs.Spec.Table = openTable(name)
			f := newFixture(t, append(cluster("c1"), theirs)...)
			f.cfg.Client = interceptor.NewClient(f.client.(client.WithWatch), interceptor.Funcs{
				// The cache does not contain objects without the label.
				Get: func(ctx context.Context, cl client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, is := o.(*networkingv1beta1.FirewallConfiguration); is && key.Name == name {
						cached++
						return kerrors.NewNotFound(schema.GroupResource{}, key.Name)
					}
					return cl.Get(ctx, key, o, opts...)
				},
			})
			_, err := f.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tenant("c1"))})
			require.ErrorContains(t, err, "delete it", "it is tried again, less and less often")
			require.Equal(t, 1, cached)
			deny, leads := f.written(t, "c1")
			require.NotNil(t, deny)
			require.Len(t, deny.Spec.Table.Chains, tc.chains)
			require.Len(t, leads, tc.addresses)
			require.InDelta(t, 1, testutil.ToFloat64(f.cfg.Metrics.failed.WithLabelValues("c1")), 0)

			f.cfg.Enabled = false // The object is not needed any more.
			f.clock.Step(time.Minute)
			f.reconcile(t, "c1")
			require.Zero(t, testutil.ToFloat64(f.cfg.Metrics.failed.WithLabelValues("c1")))
		})
	}
}

func TestWhatAGatewayDoesNotApplyIsCounted(t *testing.T) {
	f := newFixture(t, cluster("c1")...)
	failed := func() int { return int(testutil.ToFloat64(f.cfg.Metrics.failed.WithLabelValues("c1"))) }
	condition := func(host string, status metav1.ConditionStatus, at int64) networkingv1beta1.FirewallConfigurationStatusCondition {
		return networkingv1beta1.FirewallConfigurationStatusCondition{
			Host: host, Type: networkingv1beta1.FirewallConfigurationStatusConditionTypeApplied, Status: status,
			LastTransitionTime: metav1.Unix(at, 0),
		}
	}
	f.reconcile(t, "c1")
	require.Zero(t, failed(), "no gateway has seen it")
	for _, step := range []struct {
		conditions []networkingv1beta1.FirewallConfigurationStatusCondition
		failed     int
	}{
		{[]networkingv1beta1.FirewallConfigurationStatusCondition{{Host: "gw-1"}}, 0}, // Liqo's first write of a status looks like this.
		{[]networkingv1beta1.FirewallConfigurationStatusCondition{condition("gw-1", metav1.ConditionFalse, 1)}, 1},
		{[]networkingv1beta1.FirewallConfigurationStatusCondition{
			condition("gw-1", metav1.ConditionFalse, 1), condition("gw-2", metav1.ConditionTrue, 2),
		}, 0},
		{[]networkingv1beta1.FirewallConfigurationStatusCondition{
			condition("gw-2", metav1.ConditionFalse, 2), condition("gw-1", metav1.ConditionTrue, 1),
		}, 1},
	} {
		deny, _ := f.written(t, "c1")
		deny.Status.Conditions = step.conditions
		require.NoError(t, f.client.Update(t.Context(), deny))
		f.clock.Step(time.Minute)
		f.reconcile(t, "c1")
		require.Equal(t, step.failed, failed(), "%+v", step.conditions)
	}
	require.NoError(t, f.client.Delete(t.Context(), tenant("c1")))
	f.reconcile(t, "c1")
	require.Zero(t, testutil.CollectAndCount(f.cfg.Metrics.failed))
}
