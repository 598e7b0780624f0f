package provider

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	metricsfake "k8s.io/metrics/pkg/client/clientset/versioned/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"

	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podip"
)

const (
	patience = 10 * time.Second
	tick     = 10 * time.Millisecond
)

func networkView(t *testing.T, module bool, seen string) netconfig.View {
	t.Helper()
	fc := &liqov1beta1.ForeignCluster{}
	fc.Status.ObservedGeneration = 1
	fc.Status.Modules.Networking.Enabled = module
	var cfgs []*networkingv1beta1.Configuration
	if seen != "" {
		cfg := &networkingv1beta1.Configuration{Status: networkingv1beta1.ConfigurationStatus{
			Conditions: []metav1.Condition{{
				Type: networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured, Status: metav1.ConditionTrue,
			}},
			Remote: &networkingv1beta1.ClusterConfig{},
		}}
		cfg.Spec.Remote.CIDR.Pod = []networkingv1beta1.CIDR{"10.244.0.0/16"}
		cfg.Status.Remote.CIDR.Pod = []networkingv1beta1.CIDR{networkingv1beta1.CIDR(seen)}
		cfgs = append(cfgs, cfg)
	}
	view, err := netconfig.View{}.Next(fc, cfgs)
	require.NoError(t, err)
	return view
}

// clusters are a home and a remote cluster between which namespace "ns" is offloaded as "ns-home".
type clusters struct {
	t *testing.T
	connect.Clients
	network atomic.Pointer[netconfig.View]
	// far is the network of cluster q1.
	far atomic.Pointer[netconfig.View]
}

// View implements networks.
func (c *clusters) View() netconfig.View { return *c.network.Load() }

// Of implements networks.
func (c *clusters) Of(cluster string) netconfig.View {
	if view := c.far.Load(); cluster == "q1" && view != nil {
		return *view
	}
	return netconfig.View{}
}

func newClusters(t *testing.T) *clusters {
	t.Helper()
	namespaceMap := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo-tenant-p1", Name: "p1",
			Labels: map[string]string{consts.RemoteClusterID: "p1", consts.ReplicationDestinationLabel: "p1"},
		},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"ns": "ns-home"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"ns":          {RemoteNamespace: "ns-home", Phase: offloadingv1beta1.MappingAccepted},
			"kube-system": {RemoteNamespace: "kube-system-p1", Phase: offloadingv1beta1.MappingAccepted}, // The peer writes the status.
		}},
	}
	c := &clusters{t: t, Clients: connect.Clients{
		Local: fake.NewClientset(), Remote: fake.NewClientset(),
		LocalLiqo: liqofake.NewSimpleClientset(namespaceMap), RemoteLiqo: liqofake.NewSimpleClientset(),
		RemoteMetrics: metricsfake.NewSimpleClientset().MetricsV1beta1().PodMetricses,
	}}
	return c
}

func (c *clusters) show(view netconfig.View) { c.network.Store(&view) }

func (c *clusters) start() *Reflection {
	c.t.Helper()
	cfg := &Config{
		Log: testr.New(c.t), HomeCluster: "home", ForeignCluster: "p1", TenantNamespace: "liqo-tenant-p1",
		Node: NodeConfig{Name: "vnode", IP: "10.0.0.1"},
		Reflection: ReflectionConfig{Reflectors: map[resources.ResourceReflected]offloadingv1beta1.ReflectorConfig{
			resources.Pod: {NumWorkers: 2, Type: offloadingv1beta1.CustomLiqo},
		}},
		Addresses: AddressConfig{Direct: true},
	}
	events := record.NewBroadcaster()
	ctx, stop := context.WithCancel(c.t.Context())
	c.t.Cleanup(func() { stop(); events.Shutdown() })
	metrics, err := NewMetrics(prometheus.NewRegistry(), nil)
	require.NoError(c.t, err)
	reflection, err := Compose(cfg, c.Clients, nil, podip.Sources{Networks: c}, metrics, events)
	require.NoError(c.t, err)
	reflection.Start(ctx)
	return reflection
}

func (c *clusters) createLocalPod(name, address string) {
	c.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: "local-uid", Labels: map[string]string{consts.LocalPodLabelKey: consts.LocalPodLabelValue},
		},
		Spec:   corev1.PodSpec{NodeName: "vnode", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, PodIP: address},
	}
	_, err := c.Local.CoreV1().Pods("ns").Create(c.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// runRemotely acts as the remote cluster once a ShadowPod exists: it runs the pod.
func (c *clusters) runRemotely(name, address string, root ...string) {
	c.t.Helper()
	var shadow *offloadingv1beta1.ShadowPod
	require.Eventually(c.t, func() (found bool) {
		var err error
		shadow, err = c.RemoteLiqo.OffloadingV1beta1().ShadowPods("ns-home").Get(c.t.Context(), name, metav1.GetOptions{})
		return err == nil
	}, patience, tick, "the pod is forwarded")
	require.Equal(c.t, "vnode", shadow.Labels[forge.LiqoOriginClusterNodeName])
	var annotations map[string]string
	if len(root) == 2 {
		annotations = map[string]string{"brokering.liqo.io/root-ip": root[0], "brokering.liqo.io/root-cid": root[1]}
	}
	_, err := c.Remote.CoreV1().Pods("ns-home").Create(c.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns-home", Name: name, UID: "remote-uid", Labels: shadow.Labels, Annotations: annotations},
		Spec:       shadow.Spec.Pod,
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func (c *clusters) requireRoot(name, ip, cluster string) {
	c.t.Helper()
	pod, err := c.Local.CoreV1().Pods("ns").Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	require.Equal(c.t, podip.Root{IP: ip, Cluster: cluster}, podip.RootOf(pod.Annotations))
}

func (c *clusters) requireShown(name, address string) {
	c.t.Helper()
	var status corev1.PodStatus
	require.Eventually(c.t, func() bool {
		pod, err := c.Local.CoreV1().Pods("ns").Get(c.t.Context(), name, metav1.GetOptions{})
		require.NoError(c.t, err)
		status = pod.Status
		return status.Phase == corev1.PodRunning && status.PodIP == address
	}, patience, tick, "shown is %q instead of %q", &status.PodIP, address)
	if address == "" {
		require.Empty(c.t, status.PodIPs)
	} else {
		require.Equal(c.t, []corev1.PodIP{{IP: address}}, status.PodIPs)
	}
	require.Equal(c.t, "10.0.0.1", status.HostIP)
}

// TestReflection is one test with one reflection because a process can have only one: Liqo's identity of the virtual
// kubelet (pkg/virtualKubelet/forge.Init) is a package variable, which the workers of an earlier reflection may still
// read.
func TestReflection(t *testing.T) {
	c := newClusters(t)
	c.offloadFromPeer("private")
	c.createStranger("kube-system")
	c.show(networkView(t, true, ""))
	reflection := c.start()
	t.Run("addresses follow the network", func(t *testing.T) { c.checkAddresses(t, reflection) })
	t.Run("namespaces of a peer are not offloaded to it", func(t *testing.T) { c.requireRejected(t, "private") })
	t.Run("namespaces that only the peer wants are not offloaded to it", func(t *testing.T) { c.requireRejected(t, "kube-system") })
}

// offloadFromPeer adds the NamespaceMap of a peer that is also a consumer, for a namespace with the same name as one of
// this cluster, and a pod in it.
func (c *clusters) offloadFromPeer(namespace string) {
	c.t.Helper()
	theirs := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo-tenant-p1", Name: "home",
			Labels: map[string]string{consts.RemoteClusterID: "p1", consts.ReplicationDestinationLabel: "home"},
		},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{namespace: namespace + "-p1"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			namespace: {RemoteNamespace: namespace + "-p1", Phase: offloadingv1beta1.MappingAccepted},
		}},
	}
	_, err := c.LocalLiqo.OffloadingV1beta1().NamespaceMaps(theirs.Namespace).Create(c.t.Context(), theirs, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.createStranger(namespace)
}

// createStranger binds a pod of a namespace that is not offloaded.
func (c *clusters) createStranger(namespace string) {
	c.t.Helper()
	_, err := c.Local.CoreV1().Pods(namespace).Create(c.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod", UID: "private-uid"},
		Spec:       corev1.PodSpec{NodeName: "vnode", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func (c *clusters) requireRejected(t *testing.T, namespace string) {
	require.Eventually(t, func() bool {
		pod, err := c.Local.CoreV1().Pods(namespace).Get(t.Context(), "pod", metav1.GetOptions{})
		require.NoError(t, err)
		return pod.Status.Reason == forge.PodOffloadingBackOffReason
	}, patience, tick, "the pod is not rejected, as of a namespace that is not offloaded")
	shadows, err := c.RemoteLiqo.OffloadingV1beta1().ShadowPods(namespace+"-p1").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, shadows.Items)
}

func (c *clusters) checkAddresses(t *testing.T, reflection *Reflection) {
	// A pod that the remote cluster forwarded is reached directly as soon as there is a network with the cluster where
	// it runs. It never shows an address that leads elsewhere, and its local pod is annotated with its place.
	c.createLocalPod("forwarded", "")
	c.runRemotely("forwarded", "10.35.1.7", "10.244.9.7", "q1")
	c.requireShown("forwarded", "")
	c.requireRoot("forwarded", "10.244.9.7", "q1")
	down := networkView(t, true, "10.50.0.0/16")
	c.far.Store(&down)
	reflection.pods.addresses.Refresh()
	c.requireShown("forwarded", "")
	up := down
	up.Established = true
	c.far.Store(&up)
	reflection.pods.addresses.Refresh()
	c.requireShown("forwarded", "10.50.9.7")

	// Another pod is forwarded elsewhere in one step: its previous address belonged to the old place.
	c.createLocalPod("hasty", "")
	c.runRemotely("hasty", "10.35.1.8", "10.244.9.8", "q1")
	c.requireShown("hasty", "10.50.9.8")
	pods := c.Remote.CoreV1().Pods("ns-home")
	hasty, err := pods.Get(t.Context(), "hasty", metav1.GetOptions{})
	require.NoError(t, err)
	hasty.Status.PodIP = "10.36.1.8"
	hasty.Annotations["brokering.liqo.io/root-ip"], hasty.Annotations["brokering.liqo.io/root-cid"] = "10.244.9.9", "q2"
	_, err = pods.Update(t.Context(), hasty, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.requireShown("hasty", "")
	require.Eventually(t, func() bool {
		pod, err := c.Local.CoreV1().Pods("ns").Get(t.Context(), "hasty", metav1.GetOptions{})
		return err == nil && podip.RootOf(pod.Annotations) == podip.Root{IP: "10.244.9.9", Cluster: "q2"} && pod.Status.PodIP == ""
	}, patience, tick)

	c.createLocalPod("fresh", "")
	c.runRemotely("fresh", "10.244.1.2")
	c.requireShown("fresh", "") // Running, but its address is withheld.

	c.createLocalPod("restarted", "10.30.1.3")
	c.runRemotely("restarted", "10.244.1.3")
	c.requireShown("restarted", "10.30.1.3") // The address that was shown before this process started is kept.

	for _, step := range []struct{ seen, fresh, restarted string }{
		{"10.30.0.0/16", "10.30.1.2", "10.30.1.3"},
		{"10.40.0.0/16", "10.40.1.2", "10.40.1.3"},
	} {
		c.show(networkView(t, true, step.seen))
		reflection.pods.addresses.Refresh()
		c.requireShown("fresh", step.fresh)
		c.requireShown("restarted", step.restarted)
	}
	c.far.Store(&down)
	reflection.pods.addresses.Refresh()
	c.requireShown("forwarded", "") // The network no longer exists.
	c.show(networkView(t, false, ""))
	reflection.pods.addresses.Refresh()
	c.requireShown("fresh", "10.244.1.2") // The module was switched off.

	remote, err := c.Remote.CoreV1().Pods("ns-home").Get(t.Context(), "fresh", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "10.244.1.2", remote.Status.PodIP, "nothing was written on the remote cluster")
}

func TestKubernetesServiceIP(t *testing.T) {
	address := func(view netconfig.View, ip string) (string, error) {
		liqo := liqofake.NewSimpleClientset()
		if ip != "none" {
			liqo = liqofake.NewSimpleClientset(&ipamv1alpha1.IP{
				ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: consts.IPTypeAPIServer},
				Status:     ipamv1alpha1.IPStatus{IP: networkingv1beta1.IP(ip)},
			})
		}
		return kubernetesServiceIP(liqo, "liqo", func() netconfig.View { return view })(t.Context())
	}
	ip, err := address(networkView(t, false, ""), "none")
	require.NoError(t, err)
	require.Empty(t, ip, "without the networking module there is none, as with Liqo")

	ip, err = address(networkView(t, true, ""), "10.70.0.1")
	require.NoError(t, err)
	require.Equal(t, "10.70.0.1", ip)

	_, err = address(networkView(t, true, ""), "none")
	require.True(t, kerrors.IsNotFound(err))
	_, err = address(networkView(t, true, ""), "")
	require.ErrorContains(t, err, "no IP mapping")
}

func TestAPIServerSupport(t *testing.T) {
	withTokens, without, broken := fake.NewClientset(), fake.NewClientset(), fake.NewClientset()
	withTokens.Resources = []*metav1.APIResourceList{{
		GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "serviceaccounts/token"}},
	}}
	without.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods"}}}}

	for _, tc := range []struct {
		enabled bool
		client  kubernetes.Interface
		want    forge.APIServerSupportType
	}{
		{false, broken, forge.APIServerSupportDisabled},
		{true, withTokens, forge.APIServerSupportTokenAPI},
		{true, without, forge.APIServerSupportLegacy},
	} {
		got, err := apiServerSupport(tc.enabled, tc.client)
		require.NoError(t, err)
		require.Equal(t, tc.want, got)
	}
	_, err := apiServerSupport(true, broken)
	require.Error(t, errors.Unwrap(err))
}
