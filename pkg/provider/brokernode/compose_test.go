package brokernode_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	metricsfake "k8s.io/metrics/pkg/client/clientset/versioned/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"

	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podip"
)

const (
	patience = 10 * time.Second
	tick     = 10 * time.Millisecond
)

// clusters are a broker's cluster and a provider cluster, between which namespaces are offloaded: "ns" as "ns-home",
// and so on.
type clusters struct {
	t             *testing.T
	local, remote *fake.Clientset
	remoteLiqo    *liqofake.Clientset
	// startNamespaces lets namespaces start, which are blocked until then.
	startNamespaces func()
}

// noNetworks has no network.
type noNetworks struct{}

func (noNetworks) View() netconfig.View { return netconfig.View{} }

func (noNetworks) Of(string) netconfig.View { return netconfig.View{} }

// manyNamespaces returns the namespaces with a pod named "running" that the virtual kubelet has forwarded before it is
// restarted.
func manyNamespaces() []string {
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("team-%02d", i))
	}
	return names
}

// tooLarge is the answer of an API server whose Liqo webhook denies a ShadowPod.
func tooLarge() error {
	return webhookerrors.ToStatusErr("shadowpod.validate.liqo.io", &metav1.Status{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "peering cpu quota usage exceeded",
	})
}

// start runs the virtual kubelet of the VirtualNode p1-gpu. The quota rejects pods named "too-large".
func start(t *testing.T) *clusters {
	t.Helper()
	namespaceMap := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo-tenant-p1", Name: "p1",
			Labels: map[string]string{consts.RemoteClusterID: "p1", consts.ReplicationDestinationLabel: "p1"},
		},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"ns": "ns-home"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"ns": {RemoteNamespace: "ns-home", Phase: offloadingv1beta1.MappingAccepted},
		}},
	}
	c := &clusters{t: t, local: fake.NewClientset(), remote: fake.NewClientset(), remoteLiqo: liqofake.NewSimpleClientset()}
	for _, namespace := range manyNamespaces() {
		namespaceMap.Spec.DesiredMapping[namespace] = namespace + "-home"
		namespaceMap.Status.CurrentMapping[namespace] = offloadingv1beta1.RemoteNamespaceStatus{
			RemoteNamespace: namespace + "-home", Phase: offloadingv1beta1.MappingAccepted,
		}
		c.bind(namespace, "running", "p1-gpu")
	}
	started := make(chan struct{})
	c.startNamespaces = sync.OnceFunc(func() { close(started) })
	c.remoteLiqo.PrependReactor("create", "shadowpods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		shadow := action.(k8stesting.CreateAction).GetObject().(*offloadingv1beta1.ShadowPod)
		return shadow.Name == "too-large", nil, tooLarge()
	})

	cfg := &provider.Config{
		Log: testr.New(t), HomeCluster: "home", ForeignCluster: "p1", TenantNamespace: "liqo-tenant-p1",
		VirtualNode: "p1-gpu", BrokerNode: "liqo-broker",
		Node: provider.NodeConfig{Name: "p1-gpu", IP: "10.0.0.1"},
		Reflection: provider.ReflectionConfig{Reflectors: map[resources.ResourceReflected]offloadingv1beta1.ReflectorConfig{
			resources.Pod:     {NumWorkers: 2, Type: offloadingv1beta1.CustomLiqo},
			resources.Service: {NumWorkers: 1, Type: offloadingv1beta1.DenyList},
		}},
	}
	before := goleak.IgnoreCurrent()
	events := record.NewBroadcaster()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		c.startNamespaces()
		stop()
		events.Shutdown()
		require.Eventually(t, func() bool { return readable(func() { goleak.VerifyNone(t, before) }) }, 10*time.Second, 10*time.Millisecond)
	})
	metrics, err := provider.NewMetrics(prometheus.NewRegistry(), nil)
	require.NoError(t, err)
	reflection, err := provider.Compose(cfg, connect.Clients{
		Local: filtering{c.local}, Remote: holding{c.remote, started},
		LocalLiqo: liqofake.NewSimpleClientset(namespaceMap), RemoteLiqo: c.remoteLiqo,
		RemoteMetrics: metricsfake.NewSimpleClientset().MetricsV1beta1().PodMetricses,
	}, nil, podip.Sources{Networks: noNetworks{}}, metrics, events)
	require.NoError(t, err)
	reflection.Start(ctx)
	return c
}

// bind creates a pod that is bound to the broker's node, and assigned to a VirtualNode unless virtualNode is "".
func (c *clusters) bind(namespace, name, virtualNode string) {
	c.bindAt(namespace, name, assignment(virtualNode))
}

func (c *clusters) bindAt(namespace, name string, assignment map[string]string) {
	c.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + name),
			Labels:      map[string]string{"app": "a", consts.LocalPodLabelKey: consts.LocalPodLabelValue},
			Annotations: map[string]string{"brokering.liqo.io/decision": "d", "brokering.liqo.io/filter": "true"},
		},
		Spec: corev1.PodSpec{NodeName: "liqo-broker", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true}},
		},
	}
	maps.Copy(pod.Labels, assignment)
	_, err := c.local.CoreV1().Pods(namespace).Create(c.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func assignment(virtualNode string) map[string]string {
	if virtualNode == "" {
		return nil
	}
	return map[string]string{"brokering.liqo.io/virtual-node": virtualNode, "brokering.liqo.io/provider": "p1"}
}

// namesake is a VirtualNode of the same name at another provider.
func namesake() map[string]string {
	return map[string]string{"brokering.liqo.io/virtual-node": "p1-gpu", "brokering.liqo.io/provider": "p2"}
}

// assign moves a pod to a VirtualNode.
func (c *clusters) assign(name, virtualNode string) { c.assignAt(name, assignment(virtualNode)) }

func (c *clusters) assignAt(name string, assignment map[string]string) {
	c.t.Helper()
	pod, err := c.local.CoreV1().Pods("ns").Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	maps.Copy(pod.Labels, assignment)
	_, err = c.local.CoreV1().Pods("ns").Update(c.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

func (c *clusters) shadow(name string) *offloadingv1beta1.ShadowPod {
	return c.shadowIn("ns", name)
}

func (c *clusters) shadowIn(namespace, name string) *offloadingv1beta1.ShadowPod {
	shadows := c.remoteLiqo.OffloadingV1beta1().ShadowPods(namespace + "-home")
	shadow, err := shadows.Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return shadow
}

func (c *clusters) requireForwarded(name string) *offloadingv1beta1.ShadowPod {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.shadow(name) != nil }, patience, tick, "%s is forwarded", name)
	return c.shadow(name)
}

func (c *clusters) condition(namespace, name string) corev1.PodCondition {
	pod, err := c.local.CoreV1().Pods(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return corev1.PodCondition{}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == "refused.brokering.liqo.io/p1-gpu" {
			condition.LastTransitionTime = metav1.Time{}
			return condition
		}
	}
	return corev1.PodCondition{}
}

// restart simulates the start of a virtual kubelet with running pods while most of its namespaces are not started yet.
// The virtual kubelet must not reject any of these pods, even when they change, and must immediately reject the pods
// that it can never forward.
func (c *clusters) restart() {
	c.t.Helper()
	for _, namespace := range manyNamespaces() {
		pod, err := c.local.CoreV1().Pods(namespace).Get(c.t.Context(), "running", metav1.GetOptions{})
		require.NoError(c.t, err)
		pod.Annotations["example.com/touched"] = "true"
		_, err = c.local.CoreV1().Pods(namespace).Update(c.t.Context(), pod, metav1.UpdateOptions{})
		require.NoError(c.t, err)
	}
	// This pod is reconciled after the others.
	c.bind("elsewhere", "running", "p1-gpu")
	require.Eventually(c.t, func() bool {
		return c.condition("elsewhere", "running").Reason == "NamespaceNotOffloaded"
	}, patience, tick)
	require.Empty(c.t, c.refusedAmong(manyNamespaces()))

	c.startNamespaces()
	for _, namespace := range manyNamespaces() {
		require.Eventually(c.t, func() bool { return c.shadowIn(namespace, "running") != nil }, patience, tick, namespace)
	}
	require.Empty(c.t, c.refusedAmong(manyNamespaces()))
}

func (c *clusters) refusedAmong(namespaces []string) []string {
	return slices.DeleteFunc(namespaces, func(namespace string) bool {
		return c.condition(namespace, "running").Type == ""
	})
}

// TestPodsComeAndGo is one test with one reflection because a process can have only one.
func TestPodsComeAndGo(t *testing.T) {
	c := start(t)
	c.restart()

	// Assigned pods are forwarded, with Liqo's own node name and without the parts that concern this cluster only.
	c.bind("ns", "unassigned", "")
	c.bind("ns", "others", "p1-cpu")
	c.bindAt("ns", "of another provider", namesake())
	c.bind("ns", "own", "p1-gpu")
	shadow := c.requireForwarded("own")
	require.Equal(t, "p1-gpu", shadow.Labels[forge.LiqoOriginClusterNodeName])
	require.Equal(t, "a", shadow.Labels["app"])
	require.NotContains(t, shadow.Labels, "brokering.liqo.io/virtual-node")
	require.NotContains(t, shadow.Labels, "brokering.liqo.io/provider")
	require.Equal(t, map[string]string{"brokering.liqo.io/filter": "true", "brokering.liqo.io/pod-uid": "uid-own"}, shadow.Annotations)

	// A pod is moved away, and is assigned here again.
	for _, elsewhere := range []map[string]string{assignment("p1-cpu"), namesake()} {
		c.assignAt("own", elsewhere)
		require.Eventually(t, func() bool { return c.shadow("own") == nil }, patience, tick, elsewhere)
		c.assign("own", "p1-gpu")
		c.requireForwarded("own")
	}

	// Another slice of the provider has a ShadowPod of the name: it is left alone until that slice releases the pod.
	slice := shadow.DeepCopy()
	slice.Name, slice.ResourceVersion, slice.UID = "others", "", "uid-of-the-slice"
	slice.Labels[forge.LiqoOriginClusterNodeName] = "p1-cpu"
	shadows := c.remoteLiqo.OffloadingV1beta1().ShadowPods("ns-home")
	_, err := shadows.Create(t.Context(), slice, metav1.CreateOptions{})
	require.NoError(t, err)
	c.assign("others", "p1-gpu")
	c.bind("ns", "later", "p1-gpu")
	c.requireForwarded("later")
	require.Equal(t, slice.Labels, c.shadow("others").Labels)
	require.NoError(t, shadows.Delete(t.Context(), "others", metav1.DeleteOptions{}))
	require.Equal(t, "p1-gpu", c.requireForwarded("others").Labels[forge.LiqoOriginClusterNodeName])

	// A pod that the provider rejects is reported to the broker.
	c.bind("ns", "too-large", "p1-gpu")
	require.Eventually(t, func() bool { return c.condition("ns", "too-large").Type != "" }, patience, tick)
	require.Equal(t, corev1.PodCondition{
		Type: "refused.brokering.liqo.io/p1-gpu", Status: corev1.ConditionTrue, Reason: "QuotaExceeded:cpu",
		Message: tooLarge().Error(),
	}, c.condition("ns", "too-large"))

	// A pod has ended, and its provider has removed it. Liqo's controller may be making it again.
	ended, err := c.local.CoreV1().Pods("ns").Get(t.Context(), "later", metav1.GetOptions{})
	require.NoError(t, err)
	ended.Status.Phase = corev1.PodFailed
	_, err = c.local.CoreV1().Pods("ns").UpdateStatus(t.Context(), ended, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return c.shadow("later") == nil }, patience, tick)

	// The other pods were never changed. Liqo would have marked the pod in a namespace that is not offloaded Failed.
	require.Nil(t, c.shadow("unassigned"))
	require.Nil(t, c.shadow("of another provider"))
	pod, err := c.local.CoreV1().Pods("elsewhere").Get(t.Context(), "running", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.PodRunning, pod.Status.Phase)
}

// holding blocks namespaces that are starting: Liqo's reflector of services, which starts after the reflector of pods,
// asks for its client when it is created.
type holding struct {
	kubernetes.Interface
	until <-chan struct{}
}

func (holding) IsWatchListSemanticsUnSupported() bool { return true }

func (h holding) CoreV1() corev1client.CoreV1Interface {
	return holdingCore{h.Interface.CoreV1(), h.until}
}

type holdingCore struct {
	corev1client.CoreV1Interface
	until <-chan struct{}
}

func (c holdingCore) Services(namespace string) corev1client.ServiceInterface {
	<-c.until
	return c.CoreV1Interface.Services(namespace)
}

// filtering makes a fake filter as the API server does: an object that no longer matches the selection is reported as
// deleted. Without it, a fake watches all objects and ignores field selectors.
type filtering struct{ kubernetes.Interface }

func (filtering) IsWatchListSemanticsUnSupported() bool { return true }

func (f filtering) CoreV1() corev1client.CoreV1Interface { return filteringCore{f.Interface.CoreV1()} }

type filteringCore struct{ corev1client.CoreV1Interface }

func (c filteringCore) Pods(namespace string) corev1client.PodInterface {
	return filteringPods{c.CoreV1Interface.Pods(namespace)}
}

type filteringPods struct{ corev1client.PodInterface }

func selects(opts metav1.ListOptions, pod *corev1.Pod) bool {
	byLabel, errLabel := labels.Parse(opts.LabelSelector)
	byField, errField := fields.ParseSelector(opts.FieldSelector)
	return errLabel == nil && errField == nil && byLabel.Matches(labels.Set(pod.Labels)) &&
		byField.Matches(fields.Set{"spec.nodeName": pod.Spec.NodeName})
}

func (p filteringPods) List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	list, err := p.PodInterface.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := list.Items
	list.Items = nil
	for i := range all {
		if selects(opts, &all[i]) {
			list.Items = append(list.Items, all[i])
		}
	}
	return list, nil
}

func (p filteringPods) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	all, err := p.PodInterface.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	selected := &selection{Interface: all, events: make(chan watch.Event), stopped: make(chan struct{})}
	go selected.run(opts)
	return selected, nil
}

// selection is a watch of the selected objects.
type selection struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (s *selection) run(opts metav1.ListOptions) {
	for event := range s.Interface.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted && !selects(opts, pod) {
			event.Type = watch.Deleted
		}
		select {
		case s.events <- event:
		case <-s.stopped:
		}
	}
}

func (s *selection) ResultChan() <-chan watch.Event { return s.events }

func (s *selection) Stop() {
	s.once.Do(func() { close(s.stopped) })
	s.Interface.Stop()
}

// readable reports whether goleak could read the stacks of all goroutines: it panics at a stack of more than a hundred
// frames, which Go shortens. The fakes of client-go have such stacks while they merge an object.
func readable(verify func()) (is bool) {
	defer func() { is = recover() == nil }()
	verify()
	return
}
