package kubelet

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	discoveryv1alpha1 "github.com/liqotech/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "github.com/liqotech/liqo/apis/net/v1alpha1"
	liqoipam "github.com/liqotech/liqo/pkg/liqonet/ipam"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
)

// homeIPAM is the IPAM of this cluster, which maps the remote cluster's own pods.
type homeIPAM struct{ liqoipam.IpamClient }

func (homeIPAM) GetHomePodIP(context.Context, *liqoipam.GetHomePodIPRequest, ...grpc.CallOption) (*liqoipam.GetHomePodIPResponse, error) {
	return &liqoipam.GetHomePodIPResponse{HomeIP: "10.30.0.9"}, nil
}

// answers are the answers of a remote IPAM.
type answers map[string]string

func (a answers) Map(ip string) (string, bool) { answer, ok := a[ip]; return answer, ok }

// Problem returns the error of a failed attempt; for the other addresses no attempt was made.
func (a answers) Problem(ip string) error {
	if ip == "10.99.0.4" {
		return errors.New("unreachable")
	}
	return nil
}

func (a answers) Forget(string) {}

// endpoint returns the TunnelEndpoint of a remote cluster whose ranges are all remapped here.
func endpoint() *netv1alpha1.TunnelEndpointSpec {
	return &netv1alpha1.TunnelEndpointSpec{
		RemotePodCIDR: "10.244.0.0/16", RemoteNATPodCIDR: "10.30.0.0/16",
		RemoteExternalCIDR: "192.168.5.0/24", RemoteNATExternalCIDR: "192.168.30.0/24",
	}
}

func TestAddressesOfRemotePods(t *testing.T) {
	known, err := rangesOf(endpoint())
	require.NoError(t, err)
	tr := &translator{IpamClient: homeIPAM{}, ranges: func() *ranges { return &known }, remote: answers{
		"10.99.0.1": "192.168.30.4", // Liqo v0.x's server answers with the addresses that its client sees.
		"10.99.0.2": "192.168.5.5",  // This project's server answers with its own addresses.
		"10.99.0.3": "10.96.0.1",
	}}
	for shown, want := range map[string]string{
		"10.244.0.9": "10.30.0.9", // A pod of the remote cluster itself: this cluster's IPAM is asked, as Liqo does.
		"10.99.0.1":  "192.168.30.4",
		"10.99.0.2":  "192.168.30.5",
	} {
		got, err := tr.GetHomePodIP(t.Context(), &liqoipam.GetHomePodIPRequest{ClusterID: "p1", Ip: shown})
		require.NoError(t, err, shown)
		require.Equal(t, want, got.GetHomeIP(), shown)
	}
	_, err = tr.GetHomePodIP(t.Context(), &liqoipam.GetHomePodIPRequest{Ip: "10.99.0.3"})
	require.ErrorContains(t, err, "outside the ranges of the remote cluster")
	_, err = tr.GetHomePodIP(t.Context(), &liqoipam.GetHomePodIPRequest{Ip: "10.99.0.4"})
	require.ErrorIs(t, err, errPending)
	require.ErrorContains(t, err, "unreachable")
	_, err = tr.GetHomePodIP(t.Context(), &liqoipam.GetHomePodIPRequest{Ip: "10.99.0.5"})
	require.Equal(t, errPending, err, "no attempt has ended")
	tr.ranges = func() *ranges { return nil }
	_, err = tr.GetHomePodIP(t.Context(), &liqoipam.GetHomePodIPRequest{Ip: "10.99.0.1"})
	require.ErrorIs(t, err, errPending)
}

func TestRangesThatAreNotRemapped(t *testing.T) {
	spec := endpoint()
	spec.RemoteNATPodCIDR, spec.RemoteNATExternalCIDR = "None", "None"
	r, err := rangesOf(spec)
	require.NoError(t, err)
	require.Equal(t, r.pods, r.podsHere)
	got, err := r.reached(netip.MustParseAddr("192.168.5.7"))
	require.NoError(t, err)
	require.Equal(t, "192.168.5.7", got.String())
	spec.RemotePodCIDR = ""
	_, err = rangesOf(spec)
	require.Error(t, err)
}

func TestAnAddressIsForgottenWithItsLastPod(t *testing.T) {
	forge.Init(discoveryv1alpha1.ClusterIdentity{}, discoveryv1alpha1.ClusterIdentity{}, "node", "192.0.2.1")
	var forgotten, enqueued []string
	n := &namespace{pods: map[types.UID]*corev1.Pod{}, enqueue: cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, object any) { enqueued = append(enqueued, object.(*corev1.Pod).Name) },
	}}
	r := &podReflector{
		forget: func(ip string) { forgotten = append(forgotten, ip) }, shown: map[string]int{}, namespaces: map[string]*namespace{"ns": n},
	}
	pod := func(name, ip string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID(name), Labels: map[string]string{forge.LiqoOriginClusterNodeName: "node"},
			},
			Status: corev1.PodStatus{PodIP: ip},
		}
	}
	r.set(n, "ns", pod("a", "10.99.0.1"))
	r.set(n, "ns", pod("a", "10.99.0.1"))
	r.set(n, "ns", pod("b", "10.99.0.1"))
	r.refresh("10.99.0.2")
	require.Empty(t, enqueued)
	r.refresh("10.99.0.1")
	require.ElementsMatch(t, []string{"a", "b"}, enqueued)
	r.remove(n, "a")
	require.Empty(t, forgotten, "b shows it")
	r.set(n, "ns", pod("b", "10.99.0.2"))
	require.Equal(t, []string{"10.99.0.1"}, forgotten)
	delete(r.namespaces, "ns")
	r.set(n, "ns", pod("c", "10.99.0.3"))
	r.remove(n, "b")
	require.Equal(t, []string{"10.99.0.1", "10.99.0.2"}, forgotten)
	require.Empty(t, r.shown, "a pod of a namespace that was stopped is not kept")
}
