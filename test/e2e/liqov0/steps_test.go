package liqov0

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam/wire"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/liqov0"
)

const shop = "shop"

// networkManager follows docs/virtual-kubelet.md for Liqo v0.x: it edits the Deployment liqo-controller-manager of the
// consumer, peers the consumer with the broker, and offloads a namespace.
func (f *federation) networkManager(t *testing.T) {
	configure(t, f.consumer, f.broker, "--remote-ipam=server="+f.broker.IPAM())
	require.NoError(t, f.Peer(t.Context(), f.consumer.Name, f.broker.Name))
	offload(t, f.consumer, shop)
	offload(t, f.broker, f.consumer.RemoteNamespace(shop))

	pod(t, f.consumer, shop, "first")
	here, there := f.chain(t, "first")
	assert.NotEqual(t, translated(t, f.consumer, f.broker, "Pod", there), here, "as Liqo's own virtual kubelet translates it")

	// A second pod has another address, and the first pod keeps its own.
	pod(t, f.consumer, shop, "second")
	other, _ := f.chain(t, "second")
	here, _ = f.chain(t, "first")
	assert.NotEqual(t, here, other)

	require.NoError(t, f.consumer.Client.DeleteAllOf(t.Context(), podKind(), client.InNamespace(shop)))
	eventually(t, "the pods are gone everywhere", func(ctx context.Context) error {
		return noPods(ctx, f.provider, f.broker.RemoteNamespace(f.consumer.RemoteNamespace(shop)))
	})
}

// chain waits until a pod runs in all clusters, and the consumer shows the address that liqo-network-manager of the
// broker gives it. It returns that address, and the address that the broker shows.
func (f *federation) chain(t *testing.T, name string) (atConsumer, atBroker string) {
	t.Helper()
	var first *corev1.Pod
	eventually(t, "pod "+name+" shows the address of liqo-network-manager", func(ctx context.Context) (err error) {
		between, _ := f.forwarded(t, f.consumer.RemoteNamespace(shop), name)
		if first, err = runs(ctx, f.consumer, shop, name); err != nil {
			return err
		}
		atConsumer, atBroker = first.Status.PodIP, between.Status.PodIP
		if want := askLiqo(t, f.broker, f.consumer, atBroker); atConsumer != want {
			return fmt.Errorf("it shows %s, not %s", atConsumer, want)
		}
		return nil
	})
	assert.Equal(t, f.consumer.VirtualNode(f.broker), first.Spec.NodeName)
	return atConsumer, atBroker
}

// askLiqo asks liqo-network-manager of a cluster as its peer does.
func askLiqo(t *testing.T, c, peer *liqov0.Cluster, address string) string {
	t.Helper()
	conn, err := grpc.NewClient(c.IPAM(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := wire.NewClient(conn).MapEndpointIP(ctx, &wire.MapRequest{ClusterID: peer.ID(), Ip: address})
	require.NoError(t, err)
	return answer.GetIp()
}

// translated returns how a cluster sees an address of another cluster: the same host in the CIDR of its TunnelEndpoint,
// of kind Pod or External.
func translated(t *testing.T, c, remote *liqov0.Cluster, kind, address string) string {
	t.Helper()
	tunnel, err := c.Tunnel(t.Context(), remote)
	require.NoError(t, err)
	cidr := func(field string) string {
		value, _, err := unstructured.NestedString(tunnel.Object, "spec", field)
		require.NoError(t, err)
		return value
	}
	here := cidr("remoteNAT" + kind + "CIDR")
	if here == "None" || here == "" {
		return address
	}
	prefix := netip.MustParsePrefix(here)
	require.Zero(t, prefix.Bits()%8, "whole bytes")
	network, host := prefix.Addr().As4(), netip.MustParseAddr(address).As4()
	copy(host[:prefix.Bits()/8], network[:])
	return netip.AddrFrom4(host).String()
}

// directory maps the addresses of forwarded pods to addresses in the external CIDR of the broker, for the remote IPAM
// of this project.
type directory map[string]string

func (d directory) External(_ context.Context, _ string, address netip.Addr) (netip.Addr, error) {
	external, ok := d[address.String()]
	if !ok {
		return netip.Addr{}, ipam.ErrUnknown
	}
	return netip.ParseAddr(external)
}

func (directory) Home(context.Context, string, netip.Addr) (netip.Addr, error) {
	return netip.Addr{}, ipam.ErrUnknown
}

func (directory) Peered(context.Context, string) (bool, error) { return true, nil }

func (directory) PodCIDRs(context.Context) ([]netip.Prefix, error) { return nil, nil }

// serve serves the remote IPAM of this project in plaintext, as liqo-network-manager of Liqo v0.x does.
func serve(t *testing.T, known directory) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := ipam.NewServer(ipam.ServerConfig{
		Log: logr.Discard(), Metrics: ipam.NewMetrics(), Directory: known,
		Limits: ipam.Limits{PerSecond: 100, Burst: 100, Concurrent: 10, Connections: 10},
	})
	ctx, stop := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error { return server.Serve(ctx, ln) })
	t.Cleanup(func() {
		stop()
		require.NoError(t, group.Wait())
	})
	return ln.Addr().String()
}

// ownServer does the same with the server of this project and a directory of the test, because the broker that fills it
// needs Liqo v1. The server answers in the broker's own external CIDR, and the consumer translates that.
func (f *federation) ownServer(t *testing.T) {
	tunnel, err := f.consumer.Tunnel(t.Context(), f.broker)
	require.NoError(t, err)
	cidr, _, err := unstructured.NestedString(tunnel.Object, "spec", "remoteExternalCIDR")
	require.NoError(t, err)
	external := netip.MustParsePrefix(cidr).Addr().Next().Next().String()
	want := translated(t, f.consumer, f.broker, "External", external)
	require.NotEqual(t, external, want, "the external CIDR of the broker is remapped here")

	pod(t, f.consumer, shop, "ours")
	_, there := f.chain(t, "ours")
	address := serve(t, directory{there: external})
	editKubelet(t, f.consumer, f.broker, func(image string, args []string) (string, []string) {
		require.Equal(t, liqov0.ImageOurs, image)
		for i := range args {
			if strings.HasPrefix(args[i], "--remote-ipam=") {
				args[i] = "--remote-ipam=server=" + address
			}
		}
		return image, args
	})
	eventually(t, "the address of the other server", func(context.Context) error {
		if shown := running(t, f.consumer, shop, "ours").Status.PodIP; shown != want {
			return fmt.Errorf("it shows %s, not %s", shown, want)
		}
		return nil
	})
}
