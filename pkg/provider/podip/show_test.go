package podip

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
)

// peer is a network with the remote cluster only.
type peer struct{ view netconfig.View }

func (p peer) View() netconfig.View             { return p.view }
func (p peer) Of(cluster string) netconfig.View { return netconfig.View{} }

// remapped is a network with a cluster whose pods are 10.244.0.0/16, seen as 10.30.0.0/16.
func remapped(t *testing.T) peer {
	t.Helper()
	cfg := &networkingv1beta1.Configuration{Status: networkingv1beta1.ConfigurationStatus{
		Conditions: []metav1.Condition{{
			Type: networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured, Status: metav1.ConditionTrue,
		}},
		Remote: &networkingv1beta1.ClusterConfig{},
	}}
	cfg.Spec.Remote.CIDR.Pod = []networkingv1beta1.CIDR{"10.244.0.0/16"}
	cfg.Status.Remote.CIDR.Pod = []networkingv1beta1.CIDR{"10.30.0.0/16"}
	table, err := netconfig.NewTable(cfg)
	require.NoError(t, err)
	return peer{netconfig.View{Module: netconfig.Enabled, Table: &table}}
}

func podWith(address string, others ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}, Status: corev1.PodStatus{PodIP: address}}
	for _, other := range others {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: other})
	}
	return pod
}

func TestAProviderNamesOnlyItsOwnAddresses(t *testing.T) {
	const apiServer = "10.96.0.1"
	local := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	require.NoError(t, local.Add(podWith(apiServer))) // Shown by a virtual kubelet that did not reject it.
	n := &namespace{
		Addresses: &Addresses{resolver: resolver{Sources: Sources{Networks: remapped(t)}}},
		local:     corev1listers.NewPodLister(local).Pods("ns"),
	}
	for name, tc := range map[string]struct {
		remote *corev1.Pod
		want   string
	}{
		"its own":                       {podWith("10.244.1.2", "10.244.1.2"), "10.30.1.2"},
		"its own, and another's":        {podWith("10.244.1.2", "10.244.1.2", apiServer), "10.30.1.2"},
		"another's":                     {podWith(apiServer, apiServer), ""},
		"another's, first its own":      {podWith(apiServer, "10.244.1.2"), ""},
		"another's, without the first":  {podWith("", apiServer), ""},
		"one that this cluster shows":   {podWith("10.30.1.2"), ""},
		"another's in the form of IPv6": {podWith("::ffff:" + apiServer), ""},
		"one of a node, with a zone":    {podWith("fe80::1%eth0"), ""},
		"something that is no address":  {podWith("10.244.1.2/24"), ""},
		"its own in the form of IPv6":   {podWith("::ffff:10.244.1.2"), "10.30.1.2"},
		"none":                          {podWith(""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			shown := n.show(tc.remote)
			require.Equal(t, tc.want, shown.Status.PodIP)
			if tc.want == "" {
				require.Empty(t, shown.Status.PodIPs)
			} else {
				require.Equal(t, []corev1.PodIP{{IP: tc.want}}, shown.Status.PodIPs)
			}
		})
	}
}

// The annotations of a provider that runs pods itself are ignored: with them it could direct the traffic of consumers
// to another cluster.
func TestAnnotationsOfAProviderAreNotRead(t *testing.T) {
	remote := podWith("10.244.1.2")
	remote.Annotations = map[string]string{"brokering.liqo.io/root-ip": "10.244.9.9", "brokering.liqo.io/root-cid": "other"}
	of := func(cfg Config) Root {
		r := resolver{Sources: Sources{Networks: remapped(t)}, Config: cfg}
		return RootOf(r.location(podWith(""), remote))
	}
	require.Equal(t, Root{IP: "10.244.1.2", Cluster: "provider"}, of(Config{Origin: "provider"}))
	require.Zero(t, of(Config{}))
	require.Equal(t, Root{IP: "10.244.9.9", Cluster: "other"}, of(Config{Origin: "provider", Direct: true}), "the provider is a broker")
}

func TestAPodWithoutAnAddressIsNotReady(t *testing.T) {
	n := &namespace{
		Addresses: &Addresses{resolver: resolver{Sources: Sources{Networks: remapped(t)}}},
		local:     corev1listers.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})).Pods("ns"),
	}
	ready := func(address string, host bool) *corev1.Pod {
		pod := podWith(address, address)
		pod.Spec.HostNetwork = host
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}
		return pod
	}
	for name, tc := range map[string]struct {
		remote *corev1.Pod
		want   corev1.ConditionStatus
	}{
		"its address is known":              {ready("10.244.1.2", false), corev1.ConditionTrue},
		"it is not":                         {ready("192.0.2.1", false), corev1.ConditionFalse},
		"it has the network of its node":    {ready("192.0.2.1", true), corev1.ConditionTrue},
		"the provider has not given it one": {ready("", false), corev1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.remote.DeepCopy()
			shown := n.show(tc.remote)
			require.Equal(t, before, tc.remote, "the cached one stays as it is")
			require.Equal(t, corev1.ConditionTrue, shown.Status.Conditions[0].Status)
			require.Equal(t, tc.want, shown.Status.Conditions[1].Status)
			if tc.want == corev1.ConditionFalse {
				require.Equal(t, "AddressUnknown", shown.Status.Conditions[1].Reason)
				require.Contains(t, shown.Status.Conditions[1].Message, "192.0.2.1")
			}
		})
	}
}
