package podip

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
)

// network is the network of a cluster whose pods are 10.244.0.0/16, seen as the prefix pods, and whose external range
// is 10.70.0.0/16, seen as the prefix external.
func network(t *testing.T, pods, external string, up bool) netconfig.View {
	t.Helper()
	cfg := &networkingv1beta1.Configuration{Status: networkingv1beta1.ConfigurationStatus{
		Conditions: []metav1.Condition{{
			Type: networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured, Status: metav1.ConditionTrue,
		}},
		Remote: &networkingv1beta1.ClusterConfig{},
	}}
	cfg.Spec.Remote.CIDR = networkingv1beta1.ClusterConfigCIDR{
		Pod: []networkingv1beta1.CIDR{"10.244.0.0/16"}, External: []networkingv1beta1.CIDR{"10.70.0.0/16"},
	}
	cfg.Status.Remote.CIDR = networkingv1beta1.ClusterConfigCIDR{
		Pod: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(pods)}, External: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(external)},
	}
	table, err := netconfig.NewTable(cfg)
	require.NoError(t, err)
	return netconfig.View{Module: netconfig.Enabled, Table: &table, Established: up}
}

func TestResolve(t *testing.T) {
	broker := network(t, "10.30.0.0/16", "10.28.0.0/16", true)
	off := netconfig.View{Module: netconfig.Disabled}
	to := func(view netconfig.View) func(string) netconfig.View {
		return func(cluster string) netconfig.View {
			if cluster == "q1" {
				return view
			}
			return netconfig.View{}
		}
	}
	up, down := to(network(t, "10.50.0.0/16", "10.51.0.0/16", true)), to(network(t, "10.50.0.0/16", "10.51.0.0/16", false))
	through := func(ip string) (string, error) {
		if ip != "10.35.7.1" {
			return "", errors.New("asked for " + ip)
		}
		return "10.70.0.4", nil
	}
	astray := func(string) (string, error) { return "10.96.0.1", nil }
	allowed := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("10.35.0.0/16")}
	pending := func(string) (string, error) { return "", ErrPending }
	root, elsewhere := Root{"10.244.7.1", "q1"}, Root{"10.244.7.1", "q2"}
	for _, tc := range []struct {
		name    string
		ways    Ways
		ip      string
		root    Root
		want    string
		failure error
	}{
		{name: "a pod of the next cluster: Liqo's translation", ways: Ways{Next: broker}, ip: "10.244.1.2", want: "10.30.1.2"},
		{name: "an external address of the next cluster: Liqo's translation", ways: Ways{Next: broker}, ip: "10.70.0.4", want: "10.28.0.4"},
		{name: "an address of another cluster", ways: Ways{Next: broker}, ip: "10.35.7.1", root: root, failure: ErrUnreachable},
		{name: "an address of a node", ways: Ways{Next: broker}, ip: "169.254.169.254", failure: ErrUnreachable},
		{
			name: "an address of another cluster that is allowed",
			ways: Ways{Next: broker, Allowed: allowed}, ip: "10.35.7.1", want: "10.35.7.1",
		},
		{name: "an allowed address in IPv6", ways: Ways{Next: broker, Allowed: allowed}, ip: "::ffff:10.35.7.1", want: "::ffff:10.35.7.1"},
		{name: "an address that is not allowed", ways: Ways{Next: broker, Allowed: allowed}, ip: "10.36.7.1", failure: ErrUnreachable},
		{
			name: "an allowed address is asked for, if it can be",
			ways: Ways{Next: broker, Through: through, Allowed: allowed}, ip: "10.35.7.1", want: "10.28.0.4",
		},
		{
			name: "the remote IPAM answers an address of another cluster",
			ways: Ways{Next: broker, Through: astray}, ip: "10.35.7.1", failure: ErrUnreachable,
		},
		{name: "no address", ways: Ways{Next: broker}, ip: "no address", failure: ErrUnreachable},
		{
			name: "forwarded, a network to the root: direct",
			ways: Ways{Next: broker, Direct: up}, ip: "10.35.7.1", root: root, want: "10.50.7.1",
		},
		{
			name: "direct comes first",
			ways: Ways{Next: broker, Direct: up, Through: through}, ip: "10.35.7.1", root: root, want: "10.50.7.1",
		},
		{
			name: "the network to the root is down: through the next cluster",
			ways: Ways{Next: broker, Direct: down, Through: through}, ip: "10.35.7.1", root: root, want: "10.28.0.4",
		},
		{
			name: "no network to the root: through the next cluster",
			ways: Ways{Next: broker, Direct: up, Through: through}, ip: "10.35.7.1", root: elsewhere, want: "10.28.0.4",
		},
		{
			name: "the root is not known: through the next cluster",
			ways: Ways{Next: broker, Direct: up, Through: through}, ip: "10.35.7.1", want: "10.28.0.4",
		},
		{
			name: "the root's address is none of its cluster's",
			ways: Ways{Next: broker, Direct: up, Through: through}, ip: "10.35.7.1", root: Root{"192.0.2.1", "q1"}, want: "10.28.0.4",
		},
		{
			name: "a pod of the next cluster is not asked for",
			ways: Ways{Next: broker, Through: through}, ip: "10.244.1.2", want: "10.30.1.2",
		},
		{name: "no way", ways: Ways{Next: broker, Direct: down}, ip: "10.35.7.1", root: root, failure: ErrUnreachable},
		{name: "forwarded, it is not said where to", ways: Ways{Next: broker, Direct: up}, ip: "10.35.7.1", failure: ErrUnreachable},
		{name: "being looked up", ways: Ways{Next: broker, Through: pending}, ip: "10.35.7.1", failure: ErrPending},
		{
			name: "the next cluster's network is not there yet",
			ways: Ways{Next: netconfig.View{Module: netconfig.Enabled}}, ip: "10.244.1.2", failure: ErrPending,
		},
		{name: "nothing is known yet", ways: Ways{Through: through}, ip: "10.244.1.2", failure: ErrPending},
		{name: "no network with the next cluster: as Liqo shows it", ways: Ways{Next: off}, ip: "10.35.7.1", root: root, want: "10.35.7.1"},
		{
			name: "no network with the next cluster, one to the root",
			ways: Ways{Next: off, Direct: up}, ip: "10.35.7.1", root: root, want: "10.50.7.1",
		},
		{
			name: "no network with the next cluster, and none to the root",
			ways: Ways{Next: off, Direct: down}, ip: "10.35.7.1", root: root, failure: ErrUnreachable,
		},
		{
			name: "no network with the next cluster, where the pod runs",
			ways: Ways{Next: off, Direct: up}, ip: "10.244.1.2", want: "10.244.1.2",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.ways.Resolve(tc.ip, tc.root)
			require.ErrorIs(t, err, tc.failure)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestRootOf(t *testing.T) {
	require.Equal(t, Root{"10.244.7.1", "q1"},
		RootOf(map[string]string{"brokering.liqo.io/root-ip": "10.244.7.1", "brokering.liqo.io/root-cid": "q1"}))
	require.Zero(t, RootOf(nil))
	require.Zero(t, RootOf(map[string]string{"brokering.liqo.io/root-ip": "10.244.7.1"}), "one annotation alone does not count")
}
