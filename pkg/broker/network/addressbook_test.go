package network

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// bookOf is an address book of objects; the fake client computes the index as the cache does.
func bookOf(t *testing.T, objects ...client.Object) addressBook {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	return addressBook{cache: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, podAddressIndex, indexPodAddress).Build()}
}

func namespaceFor(name, consumer string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{consts.RemoteClusterID: consumer},
		Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant/" + consumer},
	}}
}

func forwardedPod(namespace, name, address string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{consts.ManagedByLabelKey: consts.ManagedByShadowPodValue},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address},
	}
}

func mappedIP(namespace, name, from, to string) *ipamv1alpha1.IP {
	return &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(from)},
		Status:     ipamv1alpha1.IPStatus{IP: networkingv1beta1.IP(to)},
	}
}

func with[T client.Object](object T, change func(T)) T {
	change(object)
	return object
}

func TestExternalAddresses(t *testing.T) {
	ours, theirs := namespaceFor("ours", "c1"), namespaceFor("theirs", "c2")
	const at, external = "10.35.7.1", "10.70.0.4"
	for what, c := range map[string]struct {
		objects []client.Object
		address string
		want    string
		err     error
	}{
		"a pod that is mapped": {
			objects: []client.Object{ours, forwardedPod("ours", "a", at), mappedIP("ours", "a", at, external)}, want: external,
		},
		"an IPv6 address, however it is written": {
			objects: []client.Object{ours, forwardedPod("ours", "a", "fd35:0::1"), mappedIP("ours", "a", "FD35::1", "fd70::4")},
			address: "fd35::1", want: "fd70::4",
		},
		"no pod has the address": {objects: []client.Object{ours}, err: ipam.ErrUnknown},
		"another consumer's pod has it": {
			objects: []client.Object{ours, theirs, forwardedPod("theirs", "a", at), mappedIP("theirs", "a", at, external)},
			err:     ipam.ErrUnknown,
		},
		"another consumer's pod that is not mapped reads the same": {
			objects: []client.Object{ours, theirs, forwardedPod("theirs", "a", at)}, err: ipam.ErrUnknown,
		},
		"another consumer's pod has it as well": {
			objects: []client.Object{
				ours, theirs, forwardedPod("theirs", "a", at), mappedIP("theirs", "a", at, "10.70.0.9"),
				forwardedPod("ours", "b", at), mappedIP("ours", "b", at, external),
			}, want: external,
		},
		"a pod that was not forwarded, in a consumer's namespace": {
			objects: []client.Object{
				ours, with(forwardedPod("ours", "a", at), func(p *corev1.Pod) { p.Labels = nil }), mappedIP("ours", "a", at, external),
			}, err: ipam.ErrUnknown,
		},
		"a namespace with the label that Liqo did not make": {
			objects: []client.Object{
				with(namespaceFor("ours", "c1"), func(n *corev1.Namespace) { n.Annotations = nil }),
				forwardedPod("ours", "a", at), mappedIP("ours", "a", at, external),
			}, err: ipam.ErrUnknown,
		},
		"a pod that is done": {
			objects: []client.Object{
				ours, with(forwardedPod("ours", "a", at), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
				mappedIP("ours", "a", at, external),
			}, err: ipam.ErrUnknown,
		},
		"not mapped yet": {objects: []client.Object{ours, forwardedPod("ours", "a", at)}, err: ipam.ErrNotYet},
		"mapped, without an answer of the IPAM": {
			objects: []client.Object{ours, forwardedPod("ours", "a", at), mappedIP("ours", "a", at, "")}, err: ipam.ErrNotYet,
		},
		"the old address is mapped still": {
			objects: []client.Object{ours, forwardedPod("ours", "a", at), mappedIP("ours", "a", "10.34.0.1", external)},
			err:     ipam.ErrNotYet,
		},
		"the mapping is being deleted": {
			objects: []client.Object{
				ours, forwardedPod("ours", "a", at), with(mappedIP("ours", "a", at, external), func(ip *ipamv1alpha1.IP) {
					ip.DeletionTimestamp, ip.Finalizers = ptr.To(metav1.NewTime(time.Unix(1, 0))), []string{"ipam.liqo.io/x"}
				}),
			}, err: ipam.ErrNotYet,
		},
		"the old address of a pod that has another": {
			objects: []client.Object{ours, forwardedPod("ours", "a", "10.34.0.1"), mappedIP("ours", "a", at, external)},
			err:     ipam.ErrUnknown,
		},
		"two pods with the address, one mapped": {
			objects: []client.Object{
				ours, forwardedPod("ours", "a", at), forwardedPod("ours", "b", at), mappedIP("ours", "b", at, external),
			}, want: external,
		},
	} {
		t.Run(what, func(t *testing.T) {
			address := c.address
			if address == "" {
				address = at
			}
			got, err := bookOf(t, c.objects...).External(t.Context(), "c1", netip.MustParseAddr(address))
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				assert.Equal(t, c.want, got.String())
			}
		})
	}
}

func configurationOf(consumer string, configured bool) *networkingv1beta1.Configuration {
	cidr := func(pod, external string) networkingv1beta1.ClusterConfig {
		return networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterConfigCIDR{
			Pod:      []networkingv1beta1.CIDR{networkingv1beta1.CIDR(pod)},
			External: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(external)},
		}}
	}
	c := &networkingv1beta1.Configuration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo-tenant-" + consumer, Name: consumer,
			Generation: 1, Labels: map[string]string{consts.RemoteClusterID: consumer},
		},
		Spec: networkingv1beta1.ConfigurationSpec{Remote: cidr("10.244.0.0/16", "10.70.0.0/16")},
	}
	if configured {
		c.Status.Remote = ptr.To(cidr("10.33.0.0/16", "10.70.0.0/16"))
		c.Status.Conditions = []metav1.Condition{{
			Type: networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured, Status: metav1.ConditionTrue, ObservedGeneration: 1,
		}}
	}
	return c
}

func TestHomeAddresses(t *testing.T) {
	book := bookOf(t, configurationOf("c1", true), configurationOf("c2", false))
	for what, c := range map[string]struct {
		consumer, address, want string
		err                     error
	}{
		"a pod of the consumer":              {"c1", "10.244.3.4", "10.33.3.4", nil},
		"an external address, not remapped":  {"c1", "10.70.0.4", "10.70.0.4", nil},
		"an address that is not of its own":  {"c1", "10.35.7.1", "", ipam.ErrUnknown},
		"a consumer not configured yet":      {"c2", "10.244.3.4", "", ipam.ErrNotYet},
		"a consumer that is not peered":      {"c3", "10.244.3.4", "", ipam.ErrNotYet},
		"an address of the other family":     {"c1", "fd00::1", "", ipam.ErrUnknown},
		"how this cluster sees it is no aim": {"c1", "10.33.3.4", "", ipam.ErrUnknown},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := book.Home(t.Context(), c.consumer, netip.MustParseAddr(c.address))
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				assert.Equal(t, c.want, got.String())
			}
		})
	}
}

func TestPeeredWith(t *testing.T) {
	book := bookOf(t, configurationOf("consumer1", false))
	for consumer, want := range map[string]bool{"consumer1": true, "consumer2": false, "system:nodes": false} {
		got, err := book.Peered(t.Context(), consumer)
		require.NoError(t, err)
		require.Equal(t, want, got, consumer)
	}
}

func TestPodCIDRs(t *testing.T) {
	network := func(name string, kind consts.NetworkType, cidr string) *ipamv1alpha1.Network {
		return &ipamv1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "liqo", Name: name, Labels: map[string]string{consts.NetworkTypeLabelKey: string(kind)},
			},
			Status: ipamv1alpha1.NetworkStatus{CIDR: networkingv1beta1.CIDR(cidr)},
		}
	}
	other := network("external-cidr", consts.NetworkTypeExternalCIDR, "10.70.0.0/16")
	got, err := bookOf(t, network("pod-cidr", consts.NetworkTypePodCIDR, "10.244.0.0/16"), other).PodCIDRs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, got)

	_, err = bookOf(t, other).PodCIDRs(t.Context())
	require.ErrorIs(t, err, ipam.ErrNotYet)
	_, err = bookOf(t, network("pod-cidr", consts.NetworkTypePodCIDR, ""), other).PodCIDRs(t.Context())
	require.ErrorIs(t, err, ipam.ErrNotYet)
}
