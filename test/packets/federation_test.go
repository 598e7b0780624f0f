package packets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	// patience is how long a pod may take to run, or an address to be known in all clusters.
	patience = 90 * time.Second
	// requestTimeout is how long a request may take.
	requestTimeout = time.Second
)

// federation is two consumers, the broker, and two providers, or fewer. The first consumer's network is connected to
// the first provider's.
type federation struct {
	*sandbox.Sandbox
	consumer, other, broker *sandbox.Cluster
	providers               []*sandbox.Cluster
	// figures are the measured paths, in order.
	figures []figure
}

func start(t *testing.T) *federation {
	t.Helper()
	return startWith(t, sandbox.Options{
		Name: "packets", Consumers: 2, Providers: 2, RemoteIPAM: true,
		BrokerArgs:     []string{"--failover-after=5s", "--probe-interval=1s", "--probe-timeout=1s", "--status-interval=1s"},
		ConsumerArgs:   []string{"--direct-traffic=true"},
		DirectNetworks: []string{"consumer1:provider1"},
	})
}

func startWith(t *testing.T, options sandbox.Options) *federation {
	t.Helper()
	if err := sandbox.PacketsPossible(); err != nil {
		t.Skip(err)
	}
	options.Packets, options.BrokerNode, options.Progress = true, "liqo-broker", t.Logf
	s, err := sandbox.Up(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs are in %s", s.Dir())
			require.NoError(t, s.Stop())
			return
		}
		require.NoError(t, s.Down())
	})
	f := &federation{
		Sandbox: s, consumer: s.Cluster(sandbox.Consumer(1)), other: s.Cluster(sandbox.Consumer(2)), broker: s.Cluster(sandbox.Broker),
	}
	for i := range options.Providers {
		f.providers = append(f.providers, s.Cluster(sandbox.Provider(i+1)))
	}
	return f
}

// wholeOnly skips a test that takes too long for make test.
func wholeOnly(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the short form")
	}
}

// eventually calls check until it returns nil.
func eventually(t *testing.T, timeout time.Duration, check func(context.Context) error) {
	t.Helper()
	require.NoError(t, sandbox.Eventually(t.Context(), timeout, check))
}

// namespace creates a namespace in a cluster, and offloads it to the clusters whose resources it uses.
func (f *federation) namespace(t *testing.T, c *sandbox.Cluster, name string) string {
	t.Helper()
	require.NoError(t, c.Offload(t.Context(), name))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		_ = c.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}) // The federation ends with the test.
	})
	return name
}

// web returns a pod that answers requests.
func web(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Containers: []corev1.Container{{
				Name: "web", Image: sandbox.ImageWeb, Ports: []corev1.ContainerPort{{ContainerPort: sandbox.WebPort}},
			}},
		},
	}
}

// local returns a pod for the host node of its own cluster.
func local(c *sandbox.Cluster, namespace, name string) *corev1.Pod {
	pod := web(namespace, name)
	pod.Spec.NodeName = c.HostNode()
	return pod
}

// at returns a pod that the broker may assign only to the given providers.
func at(namespace, name string, providers ...*sandbox.Cluster) *corev1.Pod {
	pod := web(namespace, name)
	filter := "false"
	for _, p := range providers {
		filter += fmt.Sprintf(" || provider.id == '%s'", p.Name)
	}
	pod.Annotations = map[string]string{brokeringv1alpha1.FilterAnnotation: filter}
	return pod
}

// run creates a pod and waits until it is Ready and has an address.
func (f *federation) run(t *testing.T, c *sandbox.Cluster, pod *corev1.Pod) {
	t.Helper()
	require.NoError(t, c.Client.Create(t.Context(), pod))
	f.waitReady(t, c, pod)
}

func (f *federation) waitReady(t *testing.T, c *sandbox.Cluster, pod *corev1.Pod) {
	t.Helper()
	eventually(t, patience, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.PodIP == "" || !podutil.IsPodReady(pod) {
			return fmt.Errorf("pod %s of %s is %s at %q", pod.Name, c.Name, pod.Status.Phase, pod.Status.PodIP)
		}
		return nil
	})
}

// there returns the pod in another cluster that a local pod stands for.
func (f *federation) there(t *testing.T, c *sandbox.Cluster, namespace, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	f.waitReady(t, c, pod)
	return pod
}

// seen returns a pod address of one cluster as another one sees it: the ranges are /16.
func seen(t *testing.T, from, of *sandbox.Cluster, address string) string {
	t.Helper()
	var conf networkingv1beta1.Configuration
	require.NoError(t, from.Client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-" + of.Name, Name: of.Name}, &conf))
	moved := netip.MustParseAddr(address).As4()
	prefix := netip.MustParsePrefix(string(conf.Status.Remote.CIDR.Pod[0])).Addr().As4()
	moved[0], moved[1] = prefix[0], prefix[1]
	return netip.AddrFrom4(moved).String()
}

// answer is the answer of ImageWeb.
type answer struct{ Pod, Called, Caller string }

// ask sends a request.
func ask(ctx context.Context, from *http.Client, address string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return answer{}, err
	}
	resp, err := from.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	var a answer
	if resp.StatusCode != http.StatusOK {
		return a, errors.New(resp.Status)
	}
	return a, json.NewDecoder(resp.Body).Decode(&a)
}

// clientOf returns a client that sends requests as a running pod does.
func clientOf(t *testing.T, c *sandbox.Cluster, pod *corev1.Pod) *http.Client {
	t.Helper()
	from, err := c.PodClient(pod.Namespace, pod.Name)
	require.NoError(t, err)
	return from
}

// expect repeats a request until it gets the wanted answer.
func expect(t *testing.T, from *http.Client, address string, want answer) {
	t.Helper()
	eventually(t, patience, func(ctx context.Context) error {
		got, err := ask(ctx, from, address)
		if err == nil && got != want {
			err = fmt.Errorf("%s answers %+v, want %+v", address, got, want)
		}
		return err
	})
}

// way repeats a request until ten are answered, and returns the clusters on their path: all clusters whose host nodes
// forwarded packets. It checks that the gateways between these clusters, and no others, carried the requests and the
// answers.
func (f *federation) way(t *testing.T, from *http.Client, address string) (through []string) {
	t.Helper()
	const requests = 10
	before, tunneled, began := f.settled(t), f.tunneled(t), time.Now()
	for range requests {
		eventually(t, patience, func(ctx context.Context) error {
			_, err := ask(ctx, from, address)
			return err
		})
	}
	for i, after := range f.forwarded(t) {
		if after > before[i] {
			through = append(through, f.Clusters[i].Name)
		}
	}
	// A request is at least two packets, and so is its answer. Liqo's gateways check their connection with one packet a
	// second.
	atLeast := requests + int(time.Since(began).Seconds()) + 1
	var gateways []string
	for name, after := range f.tunneled(t) {
		if after-tunneled[name] >= atLeast {
			gateways = append(gateways, name)
		}
	}
	assert.ElementsMatch(t, f.gatewaysOf(through), gateways, "the gateways whose tunnels had packets, of the way through %v", through)
	return through
}

// gatewaysOf returns the gateways on a path through clusters: between two of them, or between the broker's and each
// other one.
func (f *federation) gatewaysOf(through []string) (gateways []string) {
	if len(through) == 0 {
		return nil
	}
	between := through[0]
	if slices.Contains(through, f.broker.Name) {
		between = f.broker.Name
	}
	for _, name := range through {
		if name != between {
			gateways = append(gateways, sandbox.Gateway(between, name), sandbox.Gateway(name, between))
		}
	}
	return gateways
}

func (f *federation) tunneled(t *testing.T) map[string]int {
	t.Helper()
	packets, err := f.TunnelPackets()
	require.NoError(t, err)
	return packets
}

func (f *federation) forwarded(t *testing.T) (packets []int) {
	t.Helper()
	for _, c := range f.Clusters {
		n, err := c.Forwarded()
		require.NoError(t, err)
		packets = append(packets, n)
	}
	return packets
}

// settled waits until the host nodes have not forwarded packets for a while, because the last packets of earlier
// connections may still arrive. It returns the numbers of packets that they have forwarded.
func (f *federation) settled(t *testing.T) (packets []int) {
	t.Helper()
	const quiet = 500 * time.Millisecond
	packets, since := f.forwarded(t), time.Now()
	eventually(t, patience, func(context.Context) error {
		if now := f.forwarded(t); !slices.Equal(now, packets) {
			packets, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return errors.New("host nodes still forward packets")
		}
		return nil
	})
	return packets
}

func names(clusters []*sandbox.Cluster) (names []string) {
	for _, c := range clusters {
		names = append(names, c.Name)
	}
	return names
}
