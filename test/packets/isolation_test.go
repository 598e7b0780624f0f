package packets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// scanTimeout is how long a scan waits for one address; an answer takes tens of milliseconds.
const scanTimeout = 500 * time.Millisecond

// owned maps the pods' own addresses to the clusters that own the pods.
type owned map[string]string

// sideBySide is two consumers with the same pod ranges, namespaces and names, and the broker's cluster with pods of its
// own.
type sideBySide struct {
	pods owned
	// asker and away are pods of the first consumer, here is a pod of the broker's cluster. asker and here run in their
	// own clusters.
	asker, away, here *corev1.Pod
	// mapped has addresses of the broker's external CIDR, by namespaces of the broker's cluster.
	mapped map[string][]string
	// from is the network of asker.
	from *http.Client
}

func (f *federation) sideBySide(t *testing.T, namespace string) (s sideBySide) {
	t.Helper()
	far := f.providers[1] // The first consumer reaches all pods at the other provider through a network of its own.
	s.pods = owned{}
	for _, c := range []*sandbox.Cluster{f.consumer, f.other, f.broker} {
		ns := f.namespace(t, c, namespace)
		home, away := local(c, ns, "home"), at(ns, "away", far)
		f.run(t, c, home)
		f.run(t, c, away)
		there := c.RemoteNamespace(ns)
		if c != f.broker {
			there = f.broker.RemoteNamespace(there)
		}
		s.pods[home.Status.PodIP] = c.Name
		s.pods[f.there(t, far, there, "away").Status.PodIP] = c.Name
		switch c {
		case f.consumer:
			s.asker, s.away = home, away
		case f.broker:
			s.here = home
		}
		expectAll(t, clientOf(t, c, home), f.expose(t, c, ns).Spec.ClusterIP, "away", "home")
	}
	require.Len(t, s.pods, 6)
	// The local pod in the broker's cluster needs no mapped address.
	s.mapped = f.waitMapped(t, map[string]int{
		f.consumer.RemoteNamespace(namespace): 2, f.other.RemoteNamespace(namespace): 2, namespace: 1,
	})
	s.from = clientOf(t, f.consumer, s.asker)
	f.called(t, s.from, s.away)
	return s
}

// isolated scans for pods of others, from a pod and from the gateway of the first consumer.
func (f *federation) isolated(t *testing.T) {
	s := f.sideBySide(t, "same")
	own := s.pods.of(f.consumer.Name)
	scanned := f.visible(t, f.consumer)
	for _, addresses := range s.mapped {
		for _, address := range addresses {
			require.Contains(t, scanned, f.asSeen(t, f.consumer, address), "the scan includes the address of every mapped pod")
		}
	}
	require.Contains(t, scanned, seen(t, f.consumer, f.broker, s.here.Status.PodIP))
	found := scan(t, s.from, scanned)
	t.Logf("a pod of %s asks %d addresses and finds %v", f.consumer.Name, len(scanned), found)
	assert.Subset(t, found, own, "it finds its own")
	assert.Empty(t, without(found, own), "and no other")

	raw := f.visible(t, f.broker) // No consumer routes these to the broker unintentionally.
	require.Subset(t, raw, s.mapped[f.consumer.RemoteNamespace("same")])
	gateway := f.seizeGateway(t)
	found = nil
	eventually(t, patience, func(context.Context) error { // On a busy machine an answer may be late.
		if found = scan(t, gateway, raw); len(found) == 0 {
			return errors.New("it does not find its own at the provider")
		}
		return nil
	})
	t.Logf("the gateway of %s asks %d addresses as the broker's cluster sees them and finds %v", f.consumer.Name, len(raw), found)
	assert.Empty(t, without(found, own), "and no other")
}

// isolatedMeanwhile sends requests from a pod of the first consumer to pods of others while the gateway of the broker's
// cluster starts.
func (f *federation) isolatedMeanwhile(t *testing.T) {
	wholeOnly(t)
	s := f.sideBySide(t, "meanwhile")
	others := []string{seen(t, f.consumer, f.broker, s.here.Status.PodIP)}
	for _, namespace := range []string{f.other.RemoteNamespace("meanwhile"), "meanwhile"} {
		for _, address := range s.mapped[namespace] {
			others = append(others, f.asSeen(t, f.consumer, address))
		}
	}
	require.Len(t, others, 4)
	impatient := clientOf(t, f.consumer, s.asker)
	impatient.Timeout = 100 * time.Millisecond
	asked, answered := 0, 0
	var stops []func()
	for _, address := range others {
		soFar, stop := record(t, impatient, endpoint(address))
		stops = append(stops, func() {
			stop()
			for _, a := range soFar() {
				asked++
				if a.err == nil {
					answered++
					t.Logf("%s answers at %s: %+v", address, a.at, a.got)
				}
			}
		})
	}
	deletePod(t, f.broker, "liqo-tenant-"+f.consumer.Name, "gw-"+f.consumer.Name)
	awaitCalm(t, s.from, endpoint(s.away.Status.PodIP))
	for _, stop := range stops {
		stop()
	}
	t.Logf("%d of %d requests to pods of others were answered while the gateway started", answered, asked)
	assert.Zero(t, answered)
}

// of returns the addresses of an owner's pods.
func (o owned) of(owner string) (addresses []string) {
	for address, of := range o {
		if of == owner {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	return addresses
}

// without returns the addresses that others does not contain.
func without(addresses, others []string) []string {
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return slices.Contains(others, a) })
}

// called returns the answer of a pod now.
func (f *federation) called(t *testing.T, from *http.Client, pod *corev1.Pod) (got answer) {
	t.Helper()
	eventually(t, patience, func(ctx context.Context) (err error) {
		got, err = ask(ctx, from, endpoint(pod.Status.PodIP))
		return err
	})
	return got
}

// waitMapped waits until Liqo has mapped the wanted number of addresses in namespaces of the broker's cluster, and
// returns the mapped ones.
func (f *federation) waitMapped(t *testing.T, want map[string]int) (addresses map[string][]string) {
	t.Helper()
	eventually(t, patience, func(ctx context.Context) error {
		var ips ipamv1alpha1.IPList
		if err := f.broker.Client.List(ctx, &ips); err != nil {
			return err
		}
		addresses = map[string][]string{}
		for i := range ips.Items {
			if ip := &ips.Items[i]; want[ip.Namespace] > 0 && ip.Status.IP != "" {
				addresses[ip.Namespace] = append(addresses[ip.Namespace], ip.Status.IP.String())
			}
		}
		for namespace, count := range want {
			if len(addresses[namespace]) != count {
				return fmt.Errorf("%v are mapped, want %v", addresses, want)
			}
		}
		return nil
	})
	return addresses
}

// configurations returns the Configurations of the networks that a cluster is connected to.
func (f *federation) configurations(t *testing.T, c *sandbox.Cluster) []networkingv1beta1.Configuration {
	t.Helper()
	var list networkingv1beta1.ConfigurationList
	require.NoError(t, c.Client.List(t.Context(), &list))
	return list.Items
}

// asSeen returns an address of the broker's external CIDR as a cluster sees it.
func (f *federation) asSeen(t *testing.T, c *sandbox.Cluster, external string) string {
	t.Helper()
	for _, conf := range f.configurations(t, c) {
		if conf.Name == f.broker.Name {
			prefix := netip.MustParsePrefix(conf.Status.Remote.CIDR.External[0].String()).Addr().As4()
			moved := netip.MustParseAddr(external).As4()
			return netip.AddrFrom4([4]byte{prefix[0], prefix[1], moved[2], moved[3]}).String()
		}
	}
	require.Fail(t, "no network with the broker")
	return ""
}

// unknownSource returns the address that a cluster sees for all callers that come through the broker's cluster: the
// first of the broker's external CIDR.
func (f *federation) unknownSource(t *testing.T, c *sandbox.Cluster) string {
	t.Helper()
	return f.asSeen(t, c, "10.70.0.0")
}

// visible returns the possible pod addresses in all ranges that a cluster sees: its own, and the remapped ranges of
// other clusters. Pods of the N-th cluster have addresses of X.Y.N.0/24, and external addresses are allocated in order.
func (f *federation) visible(t *testing.T, c *sandbox.Cluster) []string {
	t.Helper()
	addresses := f.inRange(networkingv1beta1.ClusterConfigCIDR{
		Pod: []networkingv1beta1.CIDR{"10.244.0.0/16"}, External: []networkingv1beta1.CIDR{"10.70.0.0/16"},
	})
	for _, conf := range f.configurations(t, c) {
		addresses = append(addresses, f.inRange(conf.Status.Remote.CIDR)...)
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

func (f *federation) inRange(cidr networkingv1beta1.ClusterConfigCIDR) (addresses []string) {
	add := func(prefix networkingv1beta1.CIDR, third, count int) {
		address := netip.MustParsePrefix(prefix.String()).Addr().As4()
		for last := range count {
			address[2], address[3] = byte(third), byte(last)
			addresses = append(addresses, netip.AddrFrom4(address).String())
		}
	}
	for _, prefix := range cidr.Pod {
		for i := range f.Clusters {
			add(prefix, i+1, 40)
		}
	}
	for _, prefix := range cidr.External {
		add(prefix, 0, 128)
	}
	return addresses
}

// scan sends requests to all addresses, and returns the own addresses of the pods that answer, or the address of
// another server.
func scan(t *testing.T, from *http.Client, addresses []string) (found []string) {
	t.Helper()
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(64)
	for _, address := range addresses {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, scanTimeout)
			defer cancel()
			if server := serverAt(ctx, from, address); server != "" {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, server)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	slices.Sort(found)
	return slices.Compact(found)
}

// serverAt returns the server at an address, and "" if no server answers HTTP requests there.
func serverAt(ctx context.Context, from *http.Client, address string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint(address), nil)
	if err != nil {
		return ""
	}
	resp, err := from.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var got answer
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Called == "" {
		return address
	}
	return got.Called
}

// seizeGateway makes the gateway of the first consumer send all of 10.0.0.0/8 through its tunnel to the broker, from an
// address of the consumer's pod range. An administrator of that cluster can do this. It returns a client in the
// gateway.
func (f *federation) seizeGateway(t *testing.T) *http.Client {
	t.Helper()
	for _, p := range f.Status().Processes {
		if p.Cluster != f.consumer.Name || !strings.HasPrefix(p.Pod, "gw-"+f.broker.Name) {
			continue
		}
		rerouted(t, p.PID)
		from, err := f.consumer.PodClient("liqo-tenant-"+f.broker.Name, p.Pod)
		require.NoError(t, err)
		return from
	}
	require.Fail(t, "no gateway")
	return nil
}

// handleOf returns a netlink socket in the network namespace of a process.
func handleOf(pid int) (handle *netlink.Handle, err error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // Not unlocked: the thread ends with the goroutine.
		if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err == nil {
			handle, err = netlink.NewHandle()
		}
	}()
	<-done
	return handle, err
}

// rerouted changes the routes in the network namespace of a process, until the test ends.
func rerouted(t *testing.T, pid int) {
	t.Helper()
	handle, err := handleOf(pid)
	require.NoError(t, err)
	t.Cleanup(handle.Close)
	loopback, err := handle.LinkByName("lo")
	require.NoError(t, err)
	source := net.IPv4(10, 244, 1, 250)
	require.NoError(t, handle.AddrAdd(loopback, &netlink.Addr{IPNet: &net.IPNet{IP: source, Mask: net.CIDRMask(32, 32)}}))
	tunnel, err := handle.LinkByName("liqo-tunnel")
	require.NoError(t, err)
	// Before Liqo's rules, and after the rule for local addresses.
	const table = 77
	_, all, err := net.ParseCIDR("10.0.0.0/8")
	require.NoError(t, err)
	require.NoError(t, handle.RouteAdd(&netlink.Route{LinkIndex: tunnel.Attrs().Index, Dst: all, Src: source, Table: table}))
	rule := netlink.NewRule()
	rule.Table, rule.Priority, rule.Dst = table, 1, all
	require.NoError(t, handle.RuleAdd(rule))
	t.Cleanup(func() { require.NoError(t, handle.RuleDel(rule)) })
}

// reached runs pods of a consumer, and logs how long after a pod is Ready and shows its address requests reach it.
func (f *federation) reached(t *testing.T) {
	ns := f.namespace(t, f.consumer, "reached")
	asker := local(f.consumer, ns, "asker")
	f.run(t, f.consumer, asker)
	from := clientOf(t, f.consumer, asker)
	from.Timeout = 100 * time.Millisecond // A lost packet is sent again only after a second.
	var took []time.Duration
	for i := range 5 {
		pod := at(ns, fmt.Sprintf("away-%d", i), f.providers[1])
		f.run(t, f.consumer, pod)
		began := time.Now()
		f.called(t, from, pod)
		took = append(took, time.Since(began).Round(time.Millisecond))
		require.NoError(t, f.consumer.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(1)))
	}
	t.Logf("reached after it was Ready: %v", took)
	assert.Less(t, slices.Max(took), 5*time.Second)
}
