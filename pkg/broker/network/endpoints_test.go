package network

import (
	"maps"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func sent(name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: forge.EndpointSliceLabels(),
	}}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return s
}

// consumerNamespace arrived from c1.
func consumerNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "ns", Labels: map[string]string{consts.RemoteClusterID: "c1"},
		Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant-c1/c1"},
	}}
}

// consumerConfiguration has c1 seen as 10.33.0.0/16 and fd00::/64, and any other as 192.0.2.0/24.
func consumerConfiguration(cluster string) *networkingv1beta1.Configuration {
	seen := []networkingv1beta1.CIDR{"192.0.2.0/24"}
	declared := []networkingv1beta1.CIDR{"10.244.0.0/24"}
	if cluster == "c1" {
		declared, seen = []networkingv1beta1.CIDR{"10.244.0.0/16", "fd01::/64"}, []networkingv1beta1.CIDR{"10.33.0.0/16", "fd00::/64"}
	}
	cfg := &networkingv1beta1.Configuration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo-tenant-" + cluster, Name: cluster, Labels: map[string]string{consts.RemoteClusterID: cluster},
		},
		Status: networkingv1beta1.ConfigurationStatus{
			Conditions: []metav1.Condition{{
				Type: networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured, Status: metav1.ConditionTrue,
			}},
			Remote: &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterConfigCIDR{Pod: seen}},
		},
	}
	cfg.Spec.Remote.CIDR.Pod = declared
	return cfg
}

func TestEndpointsOfConsumersAreMapped(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	opaque := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "opaque", UID: "uid-opaque", Annotations: map[string]string{"brokering.liqo.io/inner-ip": "10.35.7.1"},
	}}
	native := sent("native", "10.244.0.9")
	native.Labels = nil
	other := endpointIP("elsewhere", "10.33.1.1")
	liqos := endpointIP("ns", "10.33.9.9")
	liqos.Name, liqos.Labels = "some-pod", nil
	cl := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		opaque, consumerNamespace(), consumerConfiguration("c1"), consumerConfiguration("c2"), native, other, liqos,
		sent("web", "10.33.1.1", "10.33.1.2", "10.244.0.9", "192.0.2.1", "fd00::", "example.org"), sent("api", "10.33.1.2")).Build()
	endpoints := NewEndpoints(cl, logr.Discard())

	mapped := func() map[string][]string {
		t.Helper()
		require.NoError(t, endpoints.mapEndpoints(t.Context(), "ns"))
		var ips ipamv1alpha1.IPList
		require.NoError(t, cl.List(t.Context(), &ips, client.InNamespace("ns")))
		out := map[string][]string{}
		for i := range ips.Items {
			owners := []string{}
			for _, owner := range ips.Items[i].OwnerReferences {
				owners = append(owners, owner.Name)
			}
			out[string(ips.Items[i].Spec.IP)] = owners
		}
		require.Contains(t, out, "10.33.9.9", "Liqo's own are left alone")
		delete(out, "10.33.9.9")
		require.Equal(t, []string{"opaque"}, out["10.35.7.1"])
		delete(out, "10.35.7.1")
		return out
	}
	require.Equal(t, map[string][]string{"10.33.1.1": {"web"}, "10.33.1.2": {"api", "web"}, "fd00::": {"web"}}, mapped())

	require.NoError(t, cl.Delete(t.Context(), sent("web")))
	require.Equal(t, map[string][]string{"10.33.1.2": {"api"}}, mapped(), "it goes with the last slice that has its address")
	require.NoError(t, cl.Delete(t.Context(), sent("api")))
	require.Empty(t, mapped())
	require.NoError(t, cl.Get(t.Context(), client.ObjectKeyFromObject(other), other), "other namespaces are left alone")
}

// TestEndpointsStayMappedWhileTheNetworkIsConfiguredAnew: the ranges of a consumer are not known for a moment when its
// Configuration changes. Other IPs of the same addresses would have other external addresses.
func TestEndpointsStayMappedWhileTheNetworkIsConfiguredAnew(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	cfg := consumerConfiguration("c1")
	cl := fake.NewClientBuilder().WithScheme(scheme).WithObjects(consumerNamespace(), cfg, sent("web", "10.33.1.1")).Build()
	endpoints, ctx := NewEndpoints(cl, logr.Discard()), t.Context()
	require.NoError(t, endpoints.mapEndpoints(ctx, "ns"))
	before := endpointIP("ns", "10.33.1.1")
	require.NoError(t, cl.Get(ctx, client.ObjectKeyFromObject(before), before))

	// The consumer gets a further pod CIDR. Liqo has not remapped it yet.
	require.NoError(t, cl.Get(ctx, client.ObjectKeyFromObject(cfg), cfg))
	cfg.Generation++
	cfg.Spec.Remote.CIDR.Pod = append(cfg.Spec.Remote.CIDR.Pod, networkingv1beta1.CIDR("10.245.0.0/16"))
	require.NoError(t, cl.Update(ctx, cfg))
	stays := func() {
		t.Helper()
		require.NoError(t, endpoints.mapEndpoints(ctx, "ns"))
		after := endpointIP("ns", "10.33.1.1")
		require.NoError(t, cl.Get(ctx, client.ObjectKeyFromObject(after), after))
		require.Equal(t, before, after)
	}
	stays()

	// It has two for a moment, then none.
	second := consumerConfiguration("c1")
	second.Name = "second"
	require.NoError(t, cl.Create(ctx, second))
	stays()
	require.NoError(t, cl.Delete(ctx, second))
	require.NoError(t, cl.Delete(ctx, cfg))
	require.NoError(t, endpoints.mapEndpoints(ctx, "ns"))
	var ips ipamv1alpha1.IPList
	require.NoError(t, cl.List(ctx, &ips))
	require.Empty(t, ips.Items)
}

// TestAnInnerAddressOfAnEndedPodIsNotMapped: another pod may have it at that provider by now.
func TestAnInnerAddressOfAnEndedPodIsNotMapped(t *testing.T) {
	pod := func(address string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "p-" + address, UID: types.UID(address),
				Annotations: map[string]string{v1alpha1.InnerIPAnnotation: address},
			},
			Status: corev1.PodStatus{Phase: phase},
		}
	}
	wanted := endpointIPs("ns", nil, []corev1.Pod{
		pod("10.65.1.1", corev1.PodPending), // It is shown once the address is mapped.
		pod("10.65.1.2", corev1.PodRunning),
		pod("10.65.1.3", corev1.PodSucceeded),
	}, func(string) bool { return false })
	var mapped []string
	for _, ip := range wanted {
		mapped = append(mapped, string(ip.Spec.IP))
	}
	require.ElementsMatch(t, []string{"10.65.1.1", "10.65.1.2"}, mapped)
}

func TestEndpointIPsHaveValidNames(t *testing.T) {
	names := slices.Sorted(maps.Keys(endpointIPs("ns", []discoveryv1.EndpointSlice{*sent("web", "::", "fd00::", "10.0.0.1")}, nil,
		func(string) bool { return true })))
	require.Equal(t, []string{
		"liqo-broker-endpoint-0000-0000-0000-0000-0000-0000-0000-0000", "liqo-broker-endpoint-10-0-0-1",
		"liqo-broker-endpoint-fd00-0000-0000-0000-0000-0000-0000-0000",
	}, names)
}
