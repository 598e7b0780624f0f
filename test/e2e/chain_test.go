package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/collector"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// chain is a federation in which pods are created in consumers. The tests compute the expected addresses from the
// Configurations and the IPs of the clusters. The first consumer has network connections to two of the providers, the
// second only to the broker.
type chain struct {
	*brokered
	consumers []*sandbox.Cluster
	// down is the provider to which the first consumer's network connection is down.
	down *sandbox.Cluster
	// spans are the spans of the broker and its virtual kubelets; nil if they are not traced.
	spans *collector.Collector
	// opaque means that the consumers' virtual kubelets are Liqo's own.
	opaque bool
}

// followTime is how long an address or an endpoint may take to follow a change, over all hops.
const followTime = 30 * time.Second

// offload creates a namespace in a consumer that is offloaded to the broker. The broker offloads it to all providers by
// itself.
func (c *chain) offload(t *testing.T, consumer *sandbox.Cluster) string {
	t.Helper()
	parts := strings.Split(t.Name(), "/")
	name := strings.ToLower(strings.ReplaceAll(parts[len(parts)-1], "_", "-"))
	name = strings.Trim(name[:min(len(name), 30)], "-")
	require.NoError(t, consumer.Offload(t.Context(), name))
	t.Cleanup(func() { c.withdraw(t, consumer, name) })
	return name
}

// withdraw deletes a namespace of a consumer, and waits until no objects remain that a later scenario might see.
func (c *chain) withdraw(t *testing.T, consumer *sandbox.Cluster, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(sized(2, 10))*time.Minute)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	require.NoError(t, client.IgnoreNotFound(consumer.Client.Delete(ctx, ns)))
	within(ctx, t, func(ctx context.Context) error { return c.settled(ctx, consumer.RemoteNamespace(namespace), 0) })
}

// place is the provider and the pod where a consumer's pod runs.
type place struct {
	provider *sandbox.Cluster
	address  netip.Addr
}

// placeOf finds a pod of a consumer at the providers.
func (c *chain) placeOf(ctx context.Context, consumer *sandbox.Cluster, namespace, name string) (place, error) {
	atBroker := consumer.RemoteNamespace(namespace)
	for _, provider := range c.providers {
		var pod corev1.Pod
		key := client.ObjectKey{Namespace: c.broker.RemoteNamespace(atBroker), Name: name}
		if err := provider.Client.Get(ctx, key, &pod); client.IgnoreNotFound(err) != nil {
			return place{}, err
		}
		if pod.Status.PodIP != "" && pod.DeletionTimestamp == nil {
			address, err := netip.ParseAddr(pod.Status.PodIP)
			return place{provider, address}, err
		}
	}
	return place{}, fmt.Errorf("pod %s runs at no provider", name)
}

// seen returns how a cluster sees an address of another cluster. The ranges are /16.
func seen(ctx context.Context, from, of *sandbox.Cluster, address netip.Addr) (netip.Addr, error) {
	var conf networkingv1beta1.Configuration
	key := client.ObjectKey{Namespace: "liqo-tenant-" + of.Name, Name: of.Name}
	if err := from.Client.Get(ctx, key, &conf); err != nil {
		return netip.Addr{}, err
	}
	declared, remapped := conf.Spec.Remote.CIDR, conf.Status.Remote.CIDR
	for i, cidr := range slices.Concat(declared.Pod, declared.External) {
		if !netip.MustParsePrefix(string(cidr)).Contains(address) {
			continue
		}
		moved := address.As4()
		prefix := netip.MustParsePrefix(string(slices.Concat(remapped.Pod, remapped.External)[i])).Addr().As4()
		moved[0], moved[1] = prefix[0], prefix[1]
		return netip.AddrFrom4(moved), nil
	}
	return netip.Addr{}, fmt.Errorf("%s is in no range of %s", address, of.Name)
}

// external returns the address in a cluster's external range that leads to an address as the cluster sees it.
func external(ctx context.Context, c *sandbox.Cluster, namespace, address string) (netip.Addr, error) {
	var list ipamv1alpha1.IPList
	if err := c.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return netip.Addr{}, err
	}
	var found []string
	for i := range list.Items {
		if ip := &list.Items[i]; string(ip.Spec.IP) == address && ip.Status.IP != "" {
			found = append(found, string(ip.Status.IP))
		}
	}
	if len(found) != 1 {
		return netip.Addr{}, fmt.Errorf("%s maps %s to %v", c.Name, address, found)
	}
	return netip.ParseAddr(found[0])
}

func (c *chain) connected(consumer, provider *sandbox.Cluster) bool {
	return !c.opaque && consumer == c.consumers[0] && provider != c.providers[2] && provider != c.down
}

// address returns the address at which a consumer reaches its own pod at a provider: directly, or through the broker.
func (c *chain) address(ctx context.Context, consumer *sandbox.Cluster, namespace string, at place) (string, error) {
	if c.connected(consumer, at.provider) {
		address, err := seen(ctx, consumer, at.provider, at.address)
		return address.String(), err
	}
	inBroker, err := seen(ctx, c.broker, at.provider, at.address)
	if err != nil {
		return "", err
	}
	outside, err := external(ctx, c.broker, consumer.RemoteNamespace(namespace), inBroker.String())
	if err != nil {
		return "", err
	}
	address, err := seen(ctx, consumer, c.broker, outside)
	return address.String(), err
}

// rightlyShown returns nil if the consumer's n pods of a namespace run, and show their provider and an address that
// leads there.
func (c *chain) rightlyShown(ctx context.Context, consumer *sandbox.Cluster, namespace string, n int) error {
	if err := allRunning(ctx, consumer, namespace, n); err != nil {
		return err
	}
	list, err := pods(ctx, consumer, namespace)
	if err != nil {
		return err
	}
	for i := range list {
		pod := &list[i]
		if pod.Spec.NodeName != sandbox.Broker {
			continue
		}
		at, err := c.placeOf(ctx, consumer, namespace, pod.Name)
		if err != nil {
			return err
		}
		want, err := c.address(ctx, consumer, namespace, at)
		if err != nil {
			return err
		}
		if pod.Status.PodIP != want {
			return fmt.Errorf("%s shows pod %s under %q; it is at %s as %s, which is %q here", consumer.Name, pod.Name,
				pod.Status.PodIP, at.provider.Name, at.address, want)
		}
		if c.opaque {
			continue // Liqo's IP remains when a pod moves.
		}
		root := [2]string{pod.Annotations[brokeringv1alpha1.RootIPAnnotation], pod.Annotations[brokeringv1alpha1.RootClusterAnnotation]}
		if root != [2]string{at.address.String(), at.provider.Name} {
			return fmt.Errorf("%s shows pod %s at %v; it is at %s as %s", consumer.Name, pod.Name, root, at.provider.Name, at.address)
		}
		if _, err := external(ctx, consumer, namespace, want); err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// pod creates a pod of a consumer with a filter.
func (c *chain) pod(t *testing.T, consumer *sandbox.Cluster, namespace, name, filter string) {
	t.Helper()
	pod := newPod(namespace, name)
	pod.Labels["service"] = "web"
	annotated(brokeringv1alpha1.FilterAnnotation, filter)(pod)
	require.NoError(t, consumer.Client.Create(t.Context(), pod))
}

// addresses checks the addresses of pods at every provider, before and after the pods have moved.
func (c *chain) addresses(t *testing.T) {
	const pods = 9
	namespaces, here := map[*sandbox.Cluster]string{}, map[*sandbox.Cluster]map[string]types.UID{}
	for _, consumer := range c.consumers {
		namespaces[consumer] = c.offload(t, consumer)
		for i := range pods {
			c.pod(t, consumer, namespaces[consumer], fmt.Sprintf("pod-%d", i),
				fmt.Sprintf("provider.id == 'provider%d' || provider.id == 'provider%d'", i%3+1, (i+1)%3+1))
		}
	}
	ofAll := func(within time.Duration, check func(ctx context.Context, consumer *sandbox.Cluster, ns string) error) {
		t.Helper()
		eventually(t, within, func(ctx context.Context) error {
			var errs []error
			for consumer, ns := range namespaces {
				errs = append(errs, check(ctx, consumer, ns))
			}
			return errors.Join(errs...)
		})
	}
	shown := func(ctx context.Context, consumer *sandbox.Cluster, ns string) error {
		return c.rightlyShown(ctx, consumer, ns, pods)
	}
	ofAll(patient, func(ctx context.Context, consumer *sandbox.Cluster, ns string) error {
		return c.settled(ctx, consumer.RemoteNamespace(ns), pods)
	})
	ran := time.Now()
	ofAll(patient, shown)
	t.Logf("%d pods show their addresses %s after they run", pods*len(namespaces), time.Since(ran).Round(time.Millisecond))
	for consumer, ns := range namespaces {
		here[consumer] = uids(t, consumer, ns)
	}
	for _, provider := range []string{"provider1", "provider3"} {
		c.restore(t, provider)
		c.decide(t, provider, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
		// A drain moves some pods at a time, and continues when the moved pods are Ready.
		ofAll(patient, func(ctx context.Context, consumer *sandbox.Cluster, ns string) error {
			var errs []error
			for i := range pods {
				at, err := c.placeOf(ctx, consumer, ns, fmt.Sprintf("pod-%d", i))
				if err == nil && at.provider.Name == provider {
					err = fmt.Errorf("pod-%d is still at %s", i, provider)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})
		moved := time.Now()
		ofAll(followTime, shown)
		t.Logf("they show their new addresses %s after they have left %s", time.Since(moved).Round(time.Millisecond), provider)
		c.decide(t, provider, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = false })
	}
	for consumer, ns := range namespaces {
		assert.Equal(t, here[consumer], uids(t, consumer, ns), "the pods moved, they were not made anew")
		c.expectTokensStay(t, consumer, ns, pods)
	}
}

// expectTokensStay checks that the broker has the tokens for the consumer's API server, and providers do not.
func (c *chain) expectTokensStay(t *testing.T, consumer *sandbox.Cluster, namespace string, n int) {
	t.Helper()
	tokens := func(cluster *sandbox.Cluster, namespace string) (found int) {
		var list corev1.SecretList
		require.NoError(t, cluster.Client.List(t.Context(), &list, client.InNamespace(namespace)))
		for i := range list.Items {
			if strings.HasPrefix(list.Items[i].Name, "pod-") && strings.HasSuffix(list.Items[i].Name, "-token") {
				found++
			}
		}
		return found
	}
	atBroker := consumer.RemoteNamespace(namespace)
	assert.Equal(t, n, tokens(c.broker, atBroker))
	for _, provider := range c.providers {
		assert.Zero(t, tokens(provider, c.broker.RemoteNamespace(atBroker)), provider.Name)
	}
}

// services has a pod local to the consumer, and pods at two providers. All of them are endpoints in all clusters, each
// once, before and after one pod has moved.
func (c *chain) services(t *testing.T) {
	consumer := c.consumers[0]
	ns := c.offload(t, consumer)
	svc := &corev1.Service{Spec: corev1.ServiceSpec{
		Selector: map[string]string{"service": "web"},
		Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(80)}},
	}}
	svc.Name, svc.Namespace = "web", ns
	again := svc.DeepCopy()
	again.Name = "again"
	require.NoError(t, consumer.Client.Create(t.Context(), svc))
	local := newPod(ns, "local")
	local.Labels["service"], local.Spec.NodeName = "web", consumer.Name+"-node"
	require.NoError(t, consumer.Client.Create(t.Context(), local))
	c.pod(t, consumer, ns, "one", "provider.id == 'provider1'")
	c.pod(t, consumer, ns, "two", "provider.id != 'provider1'")
	c.expectEndpoints(t, consumer, ns, svc.Name, 3)
	require.NoError(t, consumer.Client.Create(t.Context(), again))
	c.expectEndpoints(t, consumer, ns, again.Name, 3)
	require.NoError(t, consumer.Client.Delete(t.Context(), svc))
	svc = again

	two, err := c.placeOf(t.Context(), consumer, ns, "two")
	require.NoError(t, err)
	c.restore(t, two.provider.Name)
	c.decide(t, two.provider.Name, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	eventually(t, followTime, func(ctx context.Context) error {
		at, err := c.placeOf(ctx, consumer, ns, "two")
		if err == nil && at.provider == two.provider {
			err = fmt.Errorf("it is still at %s", two.provider.Name)
		}
		return err
	})
	c.expectEndpoints(t, consumer, ns, svc.Name, 3)

	require.NoError(t, consumer.Client.Delete(t.Context(), local))
	c.expectEndpoints(t, consumer, ns, svc.Name, 2)
}

// expectEndpoints waits until the consumer, the broker and every provider have exactly the n pods of a consumer's
// namespace as endpoints of a Service, at the addresses at which each cluster reaches them.
func (c *chain) expectEndpoints(t *testing.T, consumer *sandbox.Cluster, namespace, service string, n int) {
	t.Helper()
	atBroker := consumer.RemoteNamespace(namespace)
	atProvider := c.broker.RemoteNamespace(atBroker)
	eventually(t, patient, func(ctx context.Context) error {
		list, err := pods(ctx, consumer, namespace)
		if err != nil {
			return err
		}
		if len(list) != n {
			return fmt.Errorf("%d pods, want %d", len(list), n)
		}
		want := map[*sandbox.Cluster][]string{}
		for i := range list {
			if err := c.reached(ctx, consumer, &list[i], atBroker, want); err != nil {
				return fmt.Errorf("pod %s: %w", list[i].Name, err)
			}
		}
		if err := sees(ctx, consumer, namespace, service, want[consumer]); err != nil {
			return err
		}
		if err := sees(ctx, c.broker, atBroker, service, want[c.broker]); err != nil {
			return err
		}
		for _, provider := range c.providers {
			if err := sees(ctx, provider, atProvider, service, want[provider]); err != nil {
				return err
			}
		}
		return nil
	})
}

// reached adds the address at which each cluster reaches a pod of a consumer.
func (c *chain) reached(
	ctx context.Context, consumer *sandbox.Cluster, pod *corev1.Pod, atBroker string, want map[*sandbox.Cluster][]string,
) error {
	add := func(cluster *sandbox.Cluster, address netip.Addr, err error) error {
		want[cluster] = append(want[cluster], address.String())
		return err
	}
	var there place
	if pod.Spec.NodeName == sandbox.Broker {
		var err error
		if there, err = c.placeOf(ctx, consumer, pod.Namespace, pod.Name); err != nil {
			return err
		}
		here, err := c.address(ctx, consumer, pod.Namespace, there)
		if err != nil {
			return err
		}
		want[consumer] = append(want[consumer], here)
		there.address, err = seen(ctx, c.broker, there.provider, there.address)
		if err := add(c.broker, there.address, err); err != nil {
			return err
		}
	} else {
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if err := add(consumer, address, err); err != nil {
			return err
		}
		there.address, err = seen(ctx, c.broker, consumer, address)
		if err := add(c.broker, there.address, err); err != nil {
			return err
		}
	}
	outside, err := external(ctx, c.broker, atBroker, there.address.String())
	if err != nil {
		return err
	}
	for _, provider := range c.providers {
		if provider == there.provider {
			at, err := c.placeOf(ctx, consumer, pod.Namespace, pod.Name)
			if err := add(provider, at.address, err); err != nil {
				return err
			}
			continue
		}
		address, err := seen(ctx, provider, c.broker, outside)
		if err := add(provider, address, err); err != nil {
			return err
		}
	}
	return nil
}

// network cuts the connection between the consumer and a provider, and restores it.
func (c *chain) network(t *testing.T) {
	consumer, provider := c.consumers[0], c.providers[0]
	ns := c.offload(t, consumer)
	c.pod(t, consumer, ns, "near", "provider.id == 'provider1'")
	c.pod(t, consumer, ns, "other", "provider.id == 'provider2'")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 2) })
	here := uids(t, consumer, ns)

	require.NoError(t, c.Link(t.Context(), consumer.Name, provider.Name, false))
	c.down = provider
	t.Cleanup(func() {
		c.down = nil
		_ = c.Link(context.Background(), consumer.Name, provider.Name, true)
	})
	eventually(t, followTime, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 2) })
	c.down = nil
	require.NoError(t, c.Link(t.Context(), consumer.Name, provider.Name, true))
	eventually(t, followTime, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 2) })
	require.Equal(t, here, uids(t, consumer, ns))
}

// restarts restarts the broker, and the virtual kubelets of all hops.
func (c *chain) restarts(t *testing.T) {
	consumer := c.consumers[0]
	ns := c.offload(t, consumer)
	c.pod(t, consumer, ns, "one", "provider.id == 'provider1'")
	c.pod(t, consumer, ns, "two", "provider.id == 'provider2'")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 2) })
	shown := func(ctx context.Context) (map[string]string, error) {
		out := map[string]string{}
		list, err := pods(ctx, consumer, ns)
		for i := range list {
			out[list[i].Name] = string(list[i].UID) + " " + list[i].Status.PodIP
		}
		return out, err
	}
	before, err := shown(t.Context())
	require.NoError(t, err)
	for _, component := range []string{brokerComponent, "broker/vk-provider1", consumer.Name + "/vk-broker"} {
		require.NoError(t, c.Kill(component))
		c.revive(t, component)
		require.NoError(t, c.Restart(t.Context(), component))
		throughout(t, 5*time.Second, func(ctx context.Context) error {
			now, err := shown(ctx)
			if err == nil {
				err = changed(before, now)
			}
			return err
		})
	}
	// The restarted components work.
	c.pod(t, consumer, ns, "new", "provider.id == 'provider1'")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 3) })
}
