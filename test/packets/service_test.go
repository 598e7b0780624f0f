package packets

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// chained is a Service of the first consumer with one pod in the consumer and one at each provider.
type chained struct {
	// home is the pod in the consumer; away has the pods at the providers, as the consumer sees them.
	home *corev1.Pod
	away []*corev1.Pod
	// atBroker has the same pods as the broker's cluster sees them, there as the providers do.
	atBroker, there []*corev1.Pod
	// namespaces has the Service's namespace in each cluster.
	namespaces map[*sandbox.Cluster]string
	service    *corev1.Service
}

// chain runs the pods, and exposes them.
func (f *federation) chain(t *testing.T, namespace string) (s chained) {
	t.Helper()
	ns := f.namespace(t, f.consumer, namespace)
	atBroker := f.consumer.RemoteNamespace(ns)
	s.namespaces = map[*sandbox.Cluster]string{f.consumer: ns, f.broker: atBroker}
	s.home = local(f.consumer, ns, "home")
	f.run(t, f.consumer, s.home)
	for i, provider := range f.providers {
		pod := at(ns, "away-"+strconv.Itoa(i+1), provider)
		f.run(t, f.consumer, pod)
		s.namespaces[provider] = f.broker.RemoteNamespace(atBroker)
		s.away = append(s.away, pod)
		s.atBroker = append(s.atBroker, f.there(t, f.broker, atBroker, pod.Name))
		s.there = append(s.there, f.there(t, provider, s.namespaces[provider], pod.Name))
	}
	s.service = f.expose(t, f.consumer, ns)
	return s
}

// own returns the pods by their names, with their addresses in the clusters where they run.
func (s chained) own() map[string]string {
	own := map[string]string{s.home.Name: s.home.Status.PodIP}
	for _, pod := range s.there {
		own[pod.Name] = pod.Status.PodIP
	}
	return own
}

// service has endpoints in the consumer and at both providers, which have no network with each other. It is called from
// each of them.
func (f *federation) service(t *testing.T) {
	began := time.Now()
	s := f.chain(t, "service")
	exposed := time.Now()
	from := clientOf(t, f.consumer, s.home)
	eventually(t, patience, func(ctx context.Context) error {
		_, err := ask(ctx, from, s.service.Spec.ClusterIP)
		return err
	})
	first := time.Since(exposed)
	expectAll(t, from, s.service.Spec.ClusterIP, "away-1", "away-2", "home")
	t.Logf("the pods ran after %s. The first answer came %s after the Service was created, all endpoints answered after %s",
		exposed.Sub(began).Round(100*time.Millisecond), first.Round(10*time.Millisecond), time.Since(exposed).Round(10*time.Millisecond))
	for i, provider := range f.providers {
		from := clientOf(t, provider, s.there[i])
		expectAll(t, from, f.serviceIP(t, provider, s.namespaces[provider]), "away-1", "away-2", "home")
	}

	want := map[*sandbox.Cluster]map[string][]string{
		f.consumer: {
			"home": {s.home.Status.PodIP}, "away-1": {s.away[0].Status.PodIP}, "away-2": {s.away[1].Status.PodIP},
		},
		f.broker: {
			"home":   {seen(t, f.broker, f.consumer, s.home.Status.PodIP)},
			"away-1": {s.atBroker[0].Status.PodIP}, "away-2": {s.atBroker[1].Status.PodIP},
		},
		f.providers[0]: {
			"home":   {f.relayed(t, f.providers[0], s, seen(t, f.broker, f.consumer, s.home.Status.PodIP))},
			"away-1": {s.there[0].Status.PodIP}, "away-2": {f.relayed(t, f.providers[0], s, s.atBroker[1].Status.PodIP)},
		},
		f.providers[1]: {
			"home":   {f.relayed(t, f.providers[1], s, seen(t, f.broker, f.consumer, s.home.Status.PodIP))},
			"away-1": {f.relayed(t, f.providers[1], s, s.atBroker[0].Status.PodIP)}, "away-2": {s.there[1].Status.PodIP},
		},
	}
	f.expectEndpoints(t, s, want)

	// The broker's cluster has no pod of the Service, so a separate pod sends the requests.
	outsider := local(f.broker, f.namespace(t, f.broker, "outsider"), "outsider")
	f.run(t, f.broker, outsider)
	for cluster, pod := range map[*sandbox.Cluster]*corev1.Pod{
		f.consumer: s.home, f.broker: outsider, f.providers[0]: s.there[0], f.providers[1]: s.there[1],
	} {
		f.expectEach(t, cluster, pod, s, want[cluster])
	}
	f.expectWays(t, s, want, f.broker)
	for cluster, endpoints := range want {
		require.NoError(t, f.compareEndpoints(t.Context(), cluster, s, endpoints), "they have settled")
	}
}

// serviceDirectly connects the networks of the providers: they continue to use the addresses through the broker's
// cluster, until the Service asks Liqo for direct connections.
func (f *federation) serviceDirectly(t *testing.T) {
	wholeOnly(t)
	s := f.chain(t, "directly-served")
	near, far := f.providers[0], f.providers[1]
	atBroker := seen(t, f.broker, f.consumer, s.home.Status.PodIP)
	want := map[*sandbox.Cluster]map[string][]string{
		near: {
			"home":   {f.relayed(t, near, s, atBroker)},
			"away-1": {s.there[0].Status.PodIP}, "away-2": {f.relayed(t, near, s, s.atBroker[1].Status.PodIP)},
		},
		far: {
			"home":   {f.relayed(t, far, s, atBroker)},
			"away-1": {f.relayed(t, far, s, s.atBroker[0].Status.PodIP)}, "away-2": {s.there[1].Status.PodIP},
		},
	}
	require.NoError(t, f.Connect(t.Context(), near.Name, far.Name))
	f.expectEndpoints(t, s, want)
	f.expectWays(t, s, want, f.broker)
	f.traced(t, near, s.there[0], want[near]["away-2"][0], near, f.broker, far)

	patch := client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, consts.UseDirectConnectionAnnotationKey))
	began := time.Now()
	require.NoError(t, f.consumer.Client.Patch(t.Context(), s.service, patch))
	want[near]["away-2"] = []string{seen(t, near, far, s.there[1].Status.PodIP)}
	want[far]["away-1"] = []string{seen(t, far, near, s.there[0].Status.PodIP)}
	f.expectEndpoints(t, s, want)
	t.Logf("the providers had each other's addresses %s after the Service was annotated", time.Since(began).Round(10*time.Millisecond))
	for i, provider := range f.providers {
		from := clientOf(t, provider, s.there[i])
		f.expectEach(t, provider, s.there[i], s, want[provider])
		expectAll(t, from, f.serviceIP(t, provider, s.namespaces[provider]), "away-1", "away-2", "home")
	}
	f.expectWays(t, s, want, nil)
	f.traced(t, near, s.there[0], want[near]["away-2"][0], near, far)
	f.traced(t, far, s.there[1], want[far]["home"][0], far, f.broker, f.consumer)
	f.measure(t, "provider to provider directly", clientOf(t, near, s.there[0]), endpoint(want[near]["away-2"][0]))
}

// relayed returns the address under which a provider reaches an address of the broker's cluster: it is in the broker's
// external CIDR.
func (f *federation) relayed(t *testing.T, provider *sandbox.Cluster, s chained, address string) (external string) {
	t.Helper()
	eventually(t, patience, func(ctx context.Context) error {
		var ips ipamv1alpha1.IPList
		if err := f.broker.Client.List(ctx, &ips, client.InNamespace(s.namespaces[f.broker])); err != nil {
			return err
		}
		external = ""
		for i := range ips.Items {
			if ip := &ips.Items[i]; ip.Spec.IP.String() == address && ip.Status.IP != "" {
				external = ip.Status.IP.String()
			}
		}
		if external == "" {
			return fmt.Errorf("%s is not mapped", address)
		}
		return nil
	})
	return f.asSeen(t, provider, external)
}

// expectEndpoints waits until the EndpointSlices of the clusters have exactly the wanted endpoints.
func (f *federation) expectEndpoints(t *testing.T, s chained, want map[*sandbox.Cluster]map[string][]string) {
	t.Helper()
	for cluster, endpoints := range want {
		eventually(t, patience, func(ctx context.Context) error { return f.compareEndpoints(ctx, cluster, s, endpoints) })
		t.Logf("%s has the endpoints %v", cluster.Name, endpoints)
	}
}

// compareEndpoints compares the endpoints in all EndpointSlices of the Service, including duplicate addresses.
func (f *federation) compareEndpoints(ctx context.Context, cluster *sandbox.Cluster, s chained, want map[string][]string) error {
	var list discoveryv1.EndpointSliceList
	err := cluster.Client.List(ctx, &list, client.InNamespace(s.namespaces[cluster]),
		client.MatchingLabels{discoveryv1.LabelServiceName: s.service.Name})
	if err != nil {
		return err
	}
	got := map[string][]string{}
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			if !ptr.Deref(e.Conditions.Ready, false) {
				return fmt.Errorf("%s: %v is not Ready", cluster.Name, e.Addresses)
			}
			name := ""
			if e.TargetRef != nil {
				name = e.TargetRef.Name
			}
			got[name] = append(got[name], e.Addresses...)
		}
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s has the endpoints %v, want %v", cluster.Name, got, want)
	}
	return nil
}

// expectEach sends a request to each endpoint's address, from a pod of a cluster. If the two clusters have a network
// with each other, the endpoint sees the pod's address as its own cluster maps it. Otherwise it sees the one address of
// all callers through the broker's cluster.
func (f *federation) expectEach(
	t *testing.T, cluster *sandbox.Cluster, asker *corev1.Pod, s chained, endpoints map[string][]string,
) {
	t.Helper()
	from := clientOf(t, cluster, asker)
	for name, addresses := range endpoints {
		for _, address := range addresses {
			caller := f.callerAt(t, f.clusterOf(s, name), cluster, asker.Status.PodIP, address)
			expect(t, from, endpoint(address), answer{Pod: name, Called: s.own()[name], Caller: caller})
		}
	}
}

// clusterOf returns the cluster where the pod of that name runs.
func (f *federation) clusterOf(s chained, name string) *sandbox.Cluster {
	for i, pod := range s.there {
		if pod.Name == name {
			return f.providers[i]
		}
	}
	return f.consumer
}

// callerAt returns the address that cluster at sees for a caller in cluster from: the caller has the address own and
// called the address called.
func (f *federation) callerAt(t *testing.T, at, from *sandbox.Cluster, own, called string) string {
	t.Helper()
	if at == from {
		return own
	}
	for _, conf := range f.configurations(t, from) {
		prefix := netip.MustParsePrefix(conf.Status.Remote.CIDR.Pod[0].String())
		if conf.Name == at.Name && prefix.Contains(netip.MustParseAddr(called)) {
			return seen(t, at, from, own)
		}
	}
	return f.unknownSource(t, at)
}

// expectWays checks the paths of requests from the pods at the providers: to each other, through cluster between if it
// is not nil, and to the pod in the consumer, through the broker's cluster.
func (f *federation) expectWays(t *testing.T, s chained, want map[*sandbox.Cluster]map[string][]string, between *sandbox.Cluster) {
	t.Helper()
	for i, provider := range f.providers {
		from, other := clientOf(t, provider, s.there[i]), s.there[1-i].Name
		through := []string{f.providers[0].Name, f.providers[1].Name}
		if between != nil {
			through = append([]string{between.Name}, through...)
		}
		assert.Equal(t, through, f.way(t, from, endpoint(want[provider][other][0])), "from %s to %s", provider.Name, other)
		assert.Equal(t, []string{f.consumer.Name, f.broker.Name, provider.Name}, f.way(t, from, endpoint(want[provider]["home"][0])),
			"from %s to the consumer", provider.Name)
	}
}
