package endpoints

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"k8s.io/utils/trace"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	liqoinformers "github.com/liqotech/liqo/pkg/client/informers/externalversions"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
)

const (
	patience = 10 * time.Second
	tick     = 10 * time.Millisecond
)

// namespace runs Liqo's EndpointSlice reflector of one namespace, with the transformed listers, against fake clusters.
type namespace struct {
	t         *testing.T
	local     *fake.Clientset
	localLiqo *liqofake.Clientset
	remote    *liqofake.Clientset
	reflector manager.NamespacedReflector

	mu sync.Mutex
	// registered counts the event handlers. enqueued has the keys from the first two, which are this package's handlers
	// on pods and IPs; guarded by mu.
	registered int
	enqueued   map[types.NamespacedName]int
}

func startNamespace(t *testing.T, local *fake.Clientset, localPodCIDR string, ips ...runtime.Object) *namespace {
	t.Helper()
	forge.Init("home", "p1", "p1-gpu", "10.0.0.1")
	n := &namespace{
		t: t, local: local, localLiqo: liqofake.NewSimpleClientset(ips...), remote: liqofake.NewSimpleClientset(),
		enqueued: map[types.NamespacedName]int{},
	}
	localFactory := informers.NewSharedInformerFactoryWithOptions(local, 0, informers.WithNamespace("ns"))
	remoteFactory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	localLiqo := liqoinformers.NewSharedInformerFactoryWithOptions(n.localLiqo, 0, liqoinformers.WithNamespace("ns"))
	remoteLiqo := liqoinformers.NewSharedInformerFactoryWithOptions(n.remote, 0, liqoinformers.WithNamespace("ns-home"))
	events := record.NewBroadcaster()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		localFactory.Shutdown()
		localLiqo.Shutdown()
		remoteLiqo.Shutdown()
		events.Shutdown()
	})

	opts := options.NewNamespaced().
		WithLocal("ns", local, localFactory).WithLiqoLocal(n.localLiqo, localLiqo).
		WithRemote("ns-home", fake.NewClientset(), remoteFactory).WithLiqoRemote(n.remote, remoteLiqo).
		WithReadinessFunc(func() bool { return true }).WithEventBroadcaster(events).
		WithHandlerFactory(n.handlers).WithReflectionType(offloadingv1beta1.DenyList).
		WithForgingOpts(ptr.To(forge.NewEmptyForgingOpts()))
	n.reflector = Reflector("liqo-broker", []string{localPodCIDR}, func() bool { return true })(opts)
	for _, factory := range []interface {
		Start(stop <-chan struct{})
	}{localFactory, localLiqo, remoteLiqo} {
		factory.Start(ctx.Done())
	}
	localFactory.WaitForCacheSync(ctx.Done())
	localLiqo.WaitForCacheSync(ctx.Done())
	remoteLiqo.WaitForCacheSync(ctx.Done())
	return n
}

// handlers replaces Liqo's generic reflector: it only counts the enqueued keys.
func (n *namespace) handlers(keyer options.Keyer, _ ...options.EventFilter) cache.ResourceEventHandler {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.registered++
	if n.registered > 2 {
		return cache.ResourceEventHandlerFuncs{}
	}
	enqueue := func(obj any) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, key := range keyer(obj.(metav1.Object)) {
			n.enqueued[key]++
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }, DeleteFunc: enqueue}
}

func (n *namespace) timesEnqueued(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.enqueued[types.NamespacedName{Namespace: "ns", Name: name}]
}

// settle waits until the handlers have processed the pods that existed at the start: handlers get their events in
// order.
func (n *namespace) settle() {
	n.t.Helper()
	_, err := n.local.DiscoveryV1().EndpointSlices("ns").Create(n.t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "last"},
		Endpoints:  []discoveryv1.Endpoint{endpoint("10.0.1.1", nil, "last")},
	}, metav1.CreateOptions{})
	require.NoError(n.t, err)
	require.Eventually(n.t, func() bool {
		keys, err := n.reflector.List()
		return err == nil && len(keys) == 2
	}, patience, tick)
	_, err = n.local.CoreV1().Pods("ns").Create(n.t.Context(), podAt("last", "p1"), metav1.CreateOptions{})
	require.NoError(n.t, err)
	require.Eventually(n.t, func() bool { return n.timesEnqueued("last") == 1 }, patience, tick)
}

// reflected handles the EndpointSlice and returns the ShadowEndpointSlice.
func (n *namespace) reflected(name string) *offloadingv1beta1.ShadowEndpointSlice {
	n.t.Helper()
	// Liqo's reflectors expect a trace in the context.
	ctx := trace.ContextWithTrace(n.t.Context(), trace.New("test"))
	require.NoError(n.t, n.reflector.Handle(ctx, name))
	shadow, err := n.remote.OffloadingV1beta1().ShadowEndpointSlices("ns-home").Get(n.t.Context(), name, metav1.GetOptions{})
	require.NoError(n.t, err)
	// Liqo's informer must catch up with its own write. Otherwise the next reconciliation would create the object
	// again: the name is then listed for both clusters.
	require.Eventually(n.t, func() bool {
		keys, err := n.reflector.List()
		listed := 0
		for _, key := range keys {
			if key.(types.NamespacedName).Name == name {
				listed++
			}
		}
		return err == nil && listed == 2
	}, patience, tick)
	return shadow
}

func addresses(shadow *offloadingv1beta1.ShadowEndpointSlice) []string {
	var all []string
	for i := range shadow.Spec.Template.Endpoints {
		all = append(all, shadow.Spec.Template.Endpoints[i].Addresses...)
	}
	return all
}

func podAt(name, provider string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{NodeName: "liqo-broker", Containers: []corev1.Container{{Name: "c"}}},
	}
	if provider != "" {
		pod.Labels["brokering.liqo.io/provider"] = provider
	}
	return pod
}

func endpoint(address string, node *string, pod string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}, NodeName: node}
	if pod != "" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: pod, UID: types.UID("uid-" + pod)}
	}
	return e
}

// crowd is a Service with endpoints of every kind, and its EndpointSlice.
func crowd(annotations map[string]string) (*corev1.Service, *discoveryv1.EndpointSlice) {
	broker := ptr.To("liqo-broker")
	renewed := endpoint("10.0.0.6", broker, "at-p2")
	renewed.TargetRef.UID = "uid-of-before"
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Annotations: annotations}}
	return service, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			endpoint("10.0.0.1", broker, "at-p1"),
			endpoint("10.0.0.2", broker, "at-p2"),
			endpoint("10.0.0.3", broker, "unassigned"),
			endpoint("10.0.0.4", broker, "unknown"),
			endpoint("10.0.0.5", broker, ""),
			renewed,
			endpoint("10.0.0.7", ptr.To("worker"), "here"),
			endpoint("10.0.0.8", nil, ""),
			endpoint("10.0.0.9", ptr.To("p3-node"), "at-stock-liqos-node"),
		},
	}
}

func newCrowd(annotations map[string]string) *fake.Clientset {
	service, endpointSlice := crowd(annotations)
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	return fake.NewClientset(service, endpointSlice, podAt("at-p1", "p1"), podAt("at-p2", "p2"), podAt("unassigned", ""),
		node("worker", map[string]string{"os": "linux"}),
		node("liqo-broker", map[string]string{consts.TypeLabel: consts.TypeNode}),
		node("p3-node", map[string]string{consts.TypeLabel: consts.TypeNode, consts.RemoteClusterID: "p3"}))
}

func TestAProviderGetsTheEndpointsOfTheOthers(t *testing.T) {
	n := startNamespace(t, newCrowd(nil), "10.0.0.0/8")
	require.Equal(t, []string{"10.0.0.2", "10.0.0.7", "10.0.0.8", "10.0.0.9"}, addresses(n.reflected("web-1")),
		"this is p1's virtual kubelet: its own pods p1 has, and of some it is not known where they are")

	_, want := crowd(nil)
	kept, err := n.local.DiscoveryV1().EndpointSlices("ns").Get(t.Context(), "web-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, want, kept)
}

func TestEndpointsFollowTheirPods(t *testing.T) {
	n := startNamespace(t, newCrowd(nil), "10.0.0.0/8")
	n.settle()
	pods := n.local.CoreV1().Pods("ns")
	step := func(change func() error, want ...string) {
		t.Helper()
		before := n.timesEnqueued("web-1")
		require.NoError(t, change())
		require.Eventually(t, func() bool { return n.timesEnqueued("web-1") == before+1 }, patience, tick)
		shadow := n.reflected("web-1")
		require.Equal(t, want, addresses(shadow))
	}
	update := func(pod *corev1.Pod) func() error {
		return func() error {
			_, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{})
			return err
		}
	}
	others := []string{"10.0.0.7", "10.0.0.8", "10.0.0.9"}
	step(update(podAt("at-p1", "p2")), append([]string{"10.0.0.1", "10.0.0.2"}, others...)...)
	step(update(podAt("at-p2", "p1")), append([]string{"10.0.0.1"}, others...)...)
	step(update(podAt("unassigned", "p2")), append([]string{"10.0.0.1", "10.0.0.3"}, others...)...)
	step(func() error {
		_, err := pods.Create(t.Context(), podAt("unknown", "p3"), metav1.CreateOptions{})
		return err
	}, append([]string{"10.0.0.1", "10.0.0.3", "10.0.0.4"}, others...)...)
}

// mapping is an IP as Liqo makes it for an offloaded pod.
func mapping(name, address, external string) *ipamv1alpha1.IP {
	return &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(address)},
		Status:     ipamv1alpha1.IPStatus{IP: networkingv1beta1.IP(external)},
	}
}

func TestAddressesAreShownAsTheProviderReachesThem(t *testing.T) {
	n := startNamespace(t, newCrowd(nil), "10.0.0.7/32",
		mapping("at-p2", "10.0.0.2", "10.70.0.2"),
		mapping("an-earlier-one", "10.0.0.2", "10.70.0.99"), // The address was another pod's earlier.
		mapping("external", "10.0.0.8", "10.70.0.8"),
		mapping("not-mapped-yet", "10.0.0.9", ""))
	n.settle()
	require.Equal(t, []string{"10.70.0.2", "10.0.0.7", "10.70.0.8"}, addresses(n.reflected("web-1")))

	ips := n.localLiqo.IpamV1alpha1().IPs("ns")
	before := n.timesEnqueued("web-1")
	_, err := ips.Update(t.Context(), mapping("not-mapped-yet", "10.0.0.9", "10.70.0.9"), metav1.UpdateOptions{})
	require.NoError(t, err)
	// A reused address leads to its current target.
	_, err = ips.Update(t.Context(), mapping("at-p2", "10.0.0.2", "10.70.0.3"), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return n.timesEnqueued("web-1") == before+2 }, patience, tick)
	require.Equal(t, []string{"10.70.0.3", "10.0.0.7", "10.70.0.8", "10.70.0.9"}, addresses(n.reflected("web-1")))

	// A pod that shows its external address is reached with it.
	opaque := podAt("unknown", "p2")
	opaque.Annotations = map[string]string{"brokering.liqo.io/inner-ip": "10.35.0.4"}
	before = n.timesEnqueued("web-1")
	_, err = n.local.CoreV1().Pods("ns").Create(t.Context(), opaque, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return n.timesEnqueued("web-1") == before+1 }, patience, tick)
	require.Equal(t, []string{"10.70.0.3", "10.0.0.4", "10.0.0.7", "10.70.0.8", "10.70.0.9"}, addresses(n.reflected("web-1")))
}

func TestAServiceDoesNotEndHere(t *testing.T) {
	for name, tc := range map[string]struct {
		consumer string
		want     []string
	}{
		"what a consumer sent goes on to its provider":        {"consumer1", []string{"10.70.0.5"}},
		"what this provider sent, being a consumer, does not": {"p1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			service, _ := crowd(nil)
			n := startNamespace(t, fake.NewClientset(service, &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-2", Labels: map[string]string{
					discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: forge.EndpointSliceManagedBy,
					forge.LiqoOriginClusterIDKey: tc.consumer,
				}},
				Endpoints: []discoveryv1.Endpoint{endpoint("10.33.1.1", ptr.To(tc.consumer), "")},
			}), "10.244.0.0/16", mapping("endpoint-1", "10.33.1.1", "10.70.0.5"))
			require.Equal(t, tc.want, addresses(n.reflected("web-2")))
		})
	}
}

func TestOnlyReassignedPodsEnqueue(t *testing.T) {
	renewed := podAt("a", "p1")
	renewed.UID = "uid-of-another"
	relabelled := podAt("a", "p1")
	relabelled.Labels["app"] = "b"
	for name, tc := range map[string]struct {
		current  *corev1.Pod
		enqueues bool
	}{
		"it stays where it is":              {relabelled, false},
		"it runs elsewhere":                 {podAt("a", "p2"), true},
		"it runs nowhere":                   {podAt("a", ""), true},
		"another one has taken its name":    {renewed, true},
		"it has another address there":      {rootedAt("a", "p1", "p1", "10.244.1.1"), true},
		"nothing changed: it was a re-sync": {podAt("a", "p1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			enqueued := false
			whenReassigned(cache.ResourceEventHandlerFuncs{
				UpdateFunc: func(_, _ any) { enqueued = true },
			}).OnUpdate(podAt("a", "p1"), tc.current)
			require.Equal(t, tc.enqueues, enqueued)
		})
	}
}
