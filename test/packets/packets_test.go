package packets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// changed is how long a change of the path may take. Liqo's gateways need ten seconds to report a loss: five pings, 2 s
// apart.
const changed = 30 * time.Second

// proxied is how long kube-proxy may take to update: a second, and more on a busy machine.
const proxied = 6 * time.Second

// TestPackets sends requests between pods in one federation. The last two steps connect its providers, and change its
// virtual kubelets.
func TestPackets(t *testing.T) {
	f := start(t)
	t.Run("one hop", func(t *testing.T) {
		f.oneHop(t, "ours", func(namespace, name string) *corev1.Pod { return at(namespace, name, f.providers[0]) })
	})
	t.Run("two hops through the broker", f.aggregated)
	t.Run("two hops directly", f.direct)
	t.Run("a Service over the chain", f.service)
	t.Run("consumers do not reach each other", f.isolated)
	t.Run("new pods are reached", f.reached)
	t.Run("a drain under traffic", f.drained)
	t.Run("a drain under traffic that another pod answers", f.drainedOfTwo)
	t.Run("a failover under traffic", f.failedOver)
	t.Run("restarts under traffic", f.restarts)
	t.Run("consumers do not reach each other while a gateway starts", f.isolatedMeanwhile)
	t.Run("a Service over the chain, with direct connections", f.serviceDirectly)
	t.Run("one hop with Liqo's own virtual kubelet", func(t *testing.T) {
		require.NoError(t, f.broker.UseStockNodes(t.Context()))
		f.oneHop(t, "stock", func(namespace, name string) *corev1.Pod {
			pod := web(namespace, name)
			pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: f.providers[0].Name}
			return pod
		})
	})
	f.reportFigures(t)
}

// TestOpaqueAddresses uses a consumer without this repository's components.
func TestOpaqueAddresses(t *testing.T) {
	wholeOnly(t)
	f := startWith(t, sandbox.Options{
		Name: "opaque", Consumers: 1, Providers: 1, Image: sandbox.ImageStock, BrokerKubeletArgs: []string{"--opaque-addresses=true"},
	})
	provider := f.providers[0]
	ns := f.namespace(t, f.consumer, "opaque")
	home, away := local(f.consumer, ns, "home"), at(ns, "away", provider)
	f.run(t, f.consumer, home)
	f.run(t, f.consumer, away)
	atProvider := f.broker.RemoteNamespace(f.consumer.RemoteNamespace(ns))
	itself := f.there(t, provider, atProvider, "away")

	from, remote := clientOf(t, f.consumer, home), clientOf(t, provider, itself)
	got := f.called(t, from, away)
	t.Logf("%s asks %s: %+v", home.Status.PodIP, away.Status.PodIP, got)
	assert.Equal(t, answer{Pod: "away", Called: itself.Status.PodIP, Caller: f.unknownSource(t, provider)}, got)
	assert.Equal(t, []string{f.consumer.Name, f.broker.Name, provider.Name}, f.way(t, from, endpoint(away.Status.PodIP)))
	f.traced(t, f.consumer, home, away.Status.PodIP, f.consumer, f.broker, provider)

	svc := f.expose(t, f.consumer, ns)
	expectAll(t, from, svc.Spec.ClusterIP, "away", "home")
	expectAll(t, remote, f.serviceIP(t, provider, atProvider), "away", "home")
}

func endpoint(address string) string { return net.JoinHostPort(address, strconv.Itoa(sandbox.WebPort)) }

// oneHop sends requests between a pod of the broker's cluster and a pod at the first provider, in both directions and
// through a Service.
func (f *federation) oneHop(t *testing.T, namespace string, remotePod func(namespace, name string) *corev1.Pod) {
	provider := f.providers[0]
	ns := f.namespace(t, f.broker, namespace)
	atHome, away := local(f.broker, ns, "home"), remotePod(ns, "away")
	f.run(t, f.broker, atHome)
	f.run(t, f.broker, away)
	itself := f.there(t, provider, f.broker.RemoteNamespace(ns), "away")

	home, remote := clientOf(t, f.broker, atHome), clientOf(t, provider, itself)
	homeSeen := seen(t, provider, f.broker, atHome.Status.PodIP)
	toAway := answer{Pod: "away", Called: itself.Status.PodIP, Caller: homeSeen}
	expect(t, home, endpoint(away.Status.PodIP), toAway)
	assert.Equal(t, []string{f.broker.Name, provider.Name}, f.way(t, home, endpoint(away.Status.PodIP)))
	expect(t, remote, endpoint(homeSeen), answer{Pod: "home", Called: atHome.Status.PodIP, Caller: away.Status.PodIP})
	f.traced(t, f.broker, atHome, away.Status.PodIP, f.broker, provider)
	f.traced(t, provider, itself, homeSeen, provider, f.broker)
	f.measure(t, "one hop, "+namespace, home, endpoint(away.Status.PodIP))

	svc := f.expose(t, f.broker, ns)
	expectAll(t, home, svc.Spec.ClusterIP, "away", "home")
	expectAll(t, remote, f.serviceIP(t, provider, f.broker.RemoteNamespace(ns)), "away", "home")
}

// expose creates a Service for the pods of a namespace.
func (f *federation) expose(t *testing.T, c *sandbox.Cluster, namespace string) *corev1.Service {
	t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(sandbox.WebPort)}},
		},
	}
	require.NoError(t, c.Client.Create(t.Context(), svc))
	return svc
}

// serviceIP waits until the Service exists in another cluster, and returns its ClusterIP.
func (f *federation) serviceIP(t *testing.T, c *sandbox.Cluster, namespace string) string {
	t.Helper()
	var svc corev1.Service
	eventually(t, patience, func(ctx context.Context) error {
		return c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web"}, &svc)
	})
	return svc.Spec.ClusterIP
}

// expectAll sends requests to a Service until each of the pods has answered, and fails if another pod does.
func expectAll(t *testing.T, from *http.Client, clusterIP string, pods ...string) {
	t.Helper()
	eventually(t, patience, func(ctx context.Context) error {
		var answered []string
		for range 20 {
			got, err := ask(ctx, from, clusterIP)
			if err != nil {
				return err
			}
			if !slices.Contains(answered, got.Pod) {
				answered = append(answered, got.Pod)
			}
		}
		if slices.Sort(answered); !slices.Equal(answered, pods) {
			return fmt.Errorf("%v answer, want %v", answered, pods)
		}
		return nil
	})
}

// aggregated sends requests to a pod at the provider that the consumer has no network with.
func (f *federation) aggregated(t *testing.T) {
	provider := f.providers[1]
	ns := f.namespace(t, f.consumer, "through")
	asker, pod := local(f.consumer, ns, "asker"), at(ns, "away", provider)
	f.run(t, f.consumer, asker)
	f.run(t, f.consumer, pod)
	itself := f.there(t, provider, f.broker.RemoteNamespace(f.consumer.RemoteNamespace(ns)), "away")

	from := clientOf(t, f.consumer, asker)
	var got answer
	eventually(t, patience, func(ctx context.Context) (err error) {
		got, err = ask(ctx, from, endpoint(pod.Status.PodIP))
		return err
	})
	t.Logf("%s asks %s: %+v", asker.Status.PodIP, pod.Status.PodIP, got)
	assert.Equal(t, answer{Pod: "away", Called: itself.Status.PodIP, Caller: f.unknownSource(t, provider)}, got)
	assert.Equal(t, []string{f.consumer.Name, f.broker.Name, provider.Name}, f.way(t, from, endpoint(pod.Status.PodIP)))
	f.traced(t, f.consumer, asker, pod.Status.PodIP, f.consumer, f.broker, provider)
	f.measure(t, "two hops through the broker", from, endpoint(pod.Status.PodIP))
}

// direct sends requests to a pod at the provider that the consumer has a network with, while that network is up, cut,
// and up again.
func (f *federation) direct(t *testing.T) {
	provider := f.providers[0]
	ns := f.namespace(t, f.consumer, "directly")
	asker, pod := local(f.consumer, ns, "asker"), at(ns, "away", provider)
	f.run(t, f.consumer, asker)
	f.run(t, f.consumer, pod)
	itself := f.there(t, provider, f.broker.RemoteNamespace(f.consumer.RemoteNamespace(ns)), "away")

	from := clientOf(t, f.consumer, asker)
	directly := answer{Pod: "away", Called: itself.Status.PodIP, Caller: seen(t, provider, f.consumer, asker.Status.PodIP)}
	expect(t, from, endpoint(pod.Status.PodIP), directly)
	assert.Equal(t, []string{f.consumer.Name, provider.Name}, f.way(t, from, endpoint(pod.Status.PodIP)),
		"not one packet through the broker's cluster")
	f.traced(t, f.consumer, asker, pod.Status.PodIP, f.consumer, provider)
	f.measure(t, "two hops directly", from, endpoint(pod.Status.PodIP))

	straight := pod.Status.PodIP
	for _, up := range []bool{false, true} {
		began := time.Now()
		require.NoError(t, f.Link(t.Context(), f.consumer.Name, provider.Name, up))
		eventually(t, patience, func(ctx context.Context) error {
			if err := f.consumer.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			if (pod.Status.PodIP == straight) != up {
				return fmt.Errorf("the pod is shown at %s", pod.Status.PodIP)
			}
			_, err := ask(ctx, from, endpoint(pod.Status.PodIP))
			return err
		})
		took := time.Since(began)
		t.Logf("link up=%v: reached at %s after %s", up, pod.Status.PodIP, took.Round(100*time.Millisecond))
		assert.Less(t, took, changed)
		clusters := []*sandbox.Cluster{f.consumer, provider}
		if !up {
			clusters = []*sandbox.Cluster{f.consumer, f.broker, provider}
		}
		assert.Equal(t, names(clusters), f.way(t, from, endpoint(pod.Status.PodIP)))
		f.traced(t, f.consumer, asker, pod.Status.PodIP, clusters...)
	}
}

// attempt is a request that a client sent.
type attempt struct {
	at  time.Time
	got answer
	err error
}

// underTraffic runs a pod in a namespace of the consumer that may be assigned to either provider, exposes it, and sends
// 20 requests a second to the Service until the returned function is called.
func (f *federation) underTraffic(
	t *testing.T, namespace string, others ...*corev1.Pod,
) (from *http.Client, pod *corev1.Pod, traffic func() []attempt) {
	t.Helper()
	asker := local(f.consumer, namespace, "asker")
	delete(asker.Labels, "app")
	f.run(t, f.consumer, asker)
	pod = at(namespace, "moving", f.providers...)
	names := []string{pod.Name}
	for _, other := range others {
		f.run(t, f.consumer, other)
		names = append(names, other.Name)
	}
	f.run(t, f.consumer, pod)
	slices.Sort(names)
	svc := f.expose(t, f.consumer, namespace)
	from = clientOf(t, f.consumer, asker)
	expectAll(t, from, svc.Spec.ClusterIP, names...)
	return from, pod, startTraffic(t, from, svc.Spec.ClusterIP)
}

// place returns the cluster where a pod of the consumer runs.
func place(pod *corev1.Pod) string { return pod.Annotations[brokeringv1alpha1.RootClusterAnnotation] }

// awaitMove waits until the pod is Ready at another provider, answers there, and no longer answers at its old address.
// It returns the old address.
func (f *federation) awaitMove(t *testing.T, from *http.Client, pod *corev1.Pod) string {
	t.Helper()
	old, before := place(pod), pod.Status.PodIP
	eventually(t, patience, func(ctx context.Context) error {
		if err := f.consumer.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if now := place(pod); now == old || !podutil.IsPodReady(pod) || pod.Status.PodIP == "" {
			return fmt.Errorf("the pod is at %q", now)
		}
		got, err := ask(ctx, from, endpoint(pod.Status.PodIP))
		if err == nil && got.Pod != pod.Name {
			err = fmt.Errorf("%+v answers", got)
		}
		return err
	})
	if before != pod.Status.PodIP {
		_, err := ask(t.Context(), from, endpoint(before))
		assert.Error(t, err, "the old address leads nowhere")
	}
	return before
}

// drained drains the provider of a Service's only pod under traffic.
func (f *federation) drained(t *testing.T) {
	from, pod, traffic := f.underTraffic(t, f.namespace(t, f.consumer, "drained"))
	old := place(pod)
	drain(t, f.broker, old, true)
	t.Cleanup(func() { drain(t, f.broker, old, false) })
	before := f.awaitMove(t, from, pod)
	report(t, "drained", old, before, pod, traffic())
}

// drainedOfTwo drains the provider of one of a Service's two pods: the other one answers once the first is not Ready.
// Requests may fail only for a short time after the first pod becomes not Ready, and after it becomes Ready again.
func (f *federation) drainedOfTwo(t *testing.T) {
	ns := f.namespace(t, f.consumer, "two")
	staying := local(f.consumer, ns, "a-staying")
	from, pod, traffic := f.underTraffic(t, ns, staying)
	old := place(pod)
	drain(t, f.broker, old, true)
	t.Cleanup(func() { drain(t, f.broker, old, false) })
	eventually(t, patience, func(ctx context.Context) error {
		var now corev1.Pod
		if err := f.consumer.Client.Get(ctx, client.ObjectKeyFromObject(pod), &now); err != nil {
			return err
		}
		if podutil.IsPodReady(&now) && place(&now) == old {
			return errors.New("the pod is still Ready")
		}
		return nil
	})
	notReady := time.Now()
	before := f.awaitMove(t, from, pod)
	attempts := traffic()
	report(t, "drained of two", old, before, pod, attempts)
	readyAgain := podutil.GetPodReadyCondition(pod.Status).LastTransitionTime.Time // In seconds.
	mayFail := func(at time.Time) bool {
		for _, since := range []time.Time{notReady, readyAgain} { // The latter: Liqo translates its new address up to 0.3 s later.
			if d := at.Sub(since); d > -requestTimeout && d < sandbox.Crowded(proxied) {
				return true
			}
		}
		return false
	}
	for _, a := range attempts {
		if a.err != nil && !mayFail(a.at) {
			assert.NoError(t, a.err, "%s after the pod was not Ready, %s after it was Ready again", a.at.Sub(notReady),
				a.at.Sub(readyAgain))
		}
	}
}

// failedOver stops all processes at the provider of a pod under traffic.
func (f *federation) failedOver(t *testing.T) {
	from, pod, traffic := f.underTraffic(t, f.namespace(t, f.consumer, "failover"))
	old := place(pod)
	began := time.Now()
	require.NoError(t, f.Freeze(old))
	t.Cleanup(func() {
		require.NoError(t, f.Resume(old))
		f.waitProvider(t, old)
	})
	before := f.awaitMove(t, from, pod)
	attempts := traffic()
	report(t, "failed over", old, before, pod, attempts)
	for _, a := range attempts {
		if a.at.Before(began.Add(-requestTimeout)) {
			assert.NoError(t, a.err, "before the failure")
		}
	}
}

// waitProvider waits until the broker's provider is Ready.
func (f *federation) waitProvider(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var pc brokeringv1alpha1.ProviderCluster
		err := f.broker.Client.Get(ctx, client.ObjectKey{Name: name}, &pc)
		if err == nil && meta.IsStatusConditionTrue(pc.Status.Conditions, brokeringv1alpha1.ProviderReady) {
			return
		}
		select {
		case <-ctx.Done():
			require.FailNow(t, "the provider does not come back", "%s: %v", name, err)
		case <-tick.C:
		}
	}
}

// report logs the results of the requests during a move. The traffic must continue after the move, and its last request
// must be answered.
func report(t *testing.T, what, old, before string, pod *corev1.Pod, attempts []attempt) {
	t.Helper()
	failed, first, last := outage(attempts)
	t.Logf("%s: the pod moved from %s (%s) to %s (%s): %d of %d requests failed, within %s", what, old, before,
		place(pod), pod.Status.PodIP, failed, len(attempts), last.Sub(first).Round(10*time.Millisecond))
	assert.NoError(t, attempts[len(attempts)-1].err)
	assert.Less(t, last.Sub(first), 30*time.Second)
}

// outage returns the number of failed requests, the time of the first of them, and the time of the first successful one
// after the last.
func outage(attempts []attempt) (failed int, first, last time.Time) {
	for i, a := range attempts {
		if a.err == nil {
			continue
		}
		if failed == 0 {
			first = a.at
		}
		failed++
		last = attempts[min(i+1, len(attempts)-1)].at
	}
	return failed, first, last
}

// startTraffic sends 20 requests a second to an address until the returned function is called. That function waits for
// one more answer and returns the results of all requests.
func startTraffic(t *testing.T, from *http.Client, address string) func() []attempt {
	t.Helper()
	attempts, stop := record(t, from, address)
	return func() []attempt {
		t.Helper()
		defer stop()
		asked := time.Now()
		var until []attempt
		eventually(t, patience, func(context.Context) error {
			until = attempts()
			if len(until) == 0 || until[len(until)-1].at.Before(asked) {
				return errors.New("no request since the move")
			}
			return until[len(until)-1].err
		})
		return until
	}
}

// record sends 20 requests a second to an address until stop is called. soFar returns the results so far.
func record(t *testing.T, from *http.Client, address string) (soFar func() []attempt, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var attempts []attempt
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			began := time.Now()
			got, err := ask(ctx, from, address)
			if errors.Is(err, context.Canceled) {
				return
			}
			mu.Lock()
			attempts = append(attempts, attempt{began, got, err})
			mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	soFar = func() []attempt {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(attempts)
	}
	return soFar, func() {
		cancel()
		done.Wait()
	}
}

func drain(t *testing.T, broker *sandbox.Cluster, provider string, on bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pc := &brokeringv1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: provider}}
	patch := fmt.Appendf(nil, `{"spec":{"drain":%t}}`, on)
	require.NoError(t, broker.Client.Patch(ctx, pc, client.RawPatch("application/merge-patch+json", patch)))
}
