package reflection

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	metricsfake "k8s.io/metrics/pkg/client/clientset/versioned/fake"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"

	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podip"
)

const (
	patience = 20 * time.Second
	tick     = 10 * time.Millisecond
)

type noNetworks struct{}

func (noNetworks) View() netconfig.View     { return netconfig.View{} }
func (noNetworks) Of(string) netconfig.View { return netconfig.View{} }

// world is a cluster whose namespace "ns" is offloaded to another cluster as "ns-home".
type world struct {
	t             *testing.T
	local, remote *fake.Clientset
	remoteLiqo    *liqofake.Clientset
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, local: fake.NewClientset(), remote: fake.NewClientset(), remoteLiqo: liqofake.NewSimpleClientset()}
	validateStatuses(t, w.local)
	watchFromLists(&w.local.Fake, w.local.Tracker())
	watchFromLists(&w.remote.Fake, w.remote.Tracker())
	watchFromLists(&w.remoteLiqo.Fake, w.remoteLiqo.Tracker())
	return w
}

// in returns the world for a subtest.
func (w *world) in(t *testing.T) *world {
	in := *w
	in.t = t
	return &in
}

// run runs a virtual kubelet until ctx ends.
func (w *world) run(ctx context.Context) {
	w.t.Helper()
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
	cfg := &provider.Config{
		Log: logr.Discard(), HomeCluster: "home", ForeignCluster: "p1", TenantNamespace: "liqo-tenant-p1",
		Node: provider.NodeConfig{Name: "vnode", IP: "10.0.0.1"},
		Reflection: provider.ReflectionConfig{Reflectors: map[resources.ResourceReflected]offloadingv1beta1.ReflectorConfig{
			resources.Pod: {NumWorkers: 2, Type: offloadingv1beta1.CustomLiqo},
		}},
	}
	events := record.NewBroadcaster()
	w.t.Cleanup(events.Shutdown)
	metrics, err := provider.NewMetrics(prometheus.NewRegistry(), nil)
	require.NoError(w.t, err)
	reflection, err := provider.Compose(cfg, connect.Clients{
		Local: w.local, Remote: w.remote, LocalLiqo: liqofake.NewSimpleClientset(namespaceMap), RemoteLiqo: w.remoteLiqo,
		RemoteMetrics: metricsfake.NewSimpleClientset().MetricsV1beta1().PodMetricses,
	}, nil, podip.Sources{Networks: noNetworks{}}, metrics, events)
	require.NoError(w.t, err)
	reflection.Start(ctx)
}

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": name, "pod-template-hash": "abc"}},
		Spec:       corev1.PodSpec{NodeName: "vnode", Containers: []corev1.Container{{Name: "main", Image: "nginx"}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// create stores a pod in this cluster as its API server does.
func (w *world) create(p *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	stored, err := admitted(w.t, p)
	require.NoError(w.t, err)
	stored.Labels[consts.LocalPodLabelKey] = consts.LocalPodLabelValue
	stored, err = w.local.CoreV1().Pods("ns").Create(w.t.Context(), stored, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return stored
}

// shadow waits for the ShadowPod of a pod, and returns it.
func (w *world) shadow(name string) *offloadingv1beta1.ShadowPod {
	w.t.Helper()
	var shadow *offloadingv1beta1.ShadowPod
	require.Eventually(w.t, func() bool {
		var err error
		shadow, err = w.remoteLiqo.OffloadingV1beta1().ShadowPods("ns-home").Get(w.t.Context(), name, metav1.GetOptions{})
		return err == nil
	}, patience, tick, "the pod is forwarded")
	return shadow
}

// forwarded returns the pod that Liqo's controller creates from the ShadowPod.
func (w *world) forwarded(name string) *corev1.Pod {
	w.t.Helper()
	shadow := w.shadow(name)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-home", Name: name, Labels: shadow.Labels, Annotations: shadow.Annotations,
			UID: types.UID("remote-" + name),
		},
		Spec: shadow.Spec.Pod,
	}
}

// runs stores a pod in the remote cluster, changed by its admission, with a status.
func (w *world) runs(p *corev1.Pod, status corev1.PodStatus) *corev1.Pod {
	w.t.Helper()
	stored, err := admitted(w.t, p)
	require.NoError(w.t, err)
	status.QOSClass = stored.Status.QOSClass
	stored.Status = status
	stored, err = w.remote.CoreV1().Pods("ns-home").Create(w.t.Context(), stored, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return stored
}

// update stores a changed remote pod.
func (w *world) update(p *corev1.Pod) {
	w.t.Helper()
	require.NoError(w.t, w.remote.Tracker().Update(podsResource, p.DeepCopy(), "ns-home"))
}

// remove removes a remote pod.
func (w *world) remove(name string) {
	w.t.Helper()
	require.NoError(w.t, w.remote.Tracker().Delete(podsResource, "ns-home", name))
}

func (w *world) localPod(name string) *corev1.Pod {
	w.t.Helper()
	p, err := w.local.CoreV1().Pods("ns").Get(w.t.Context(), name, metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return p
}

// shown waits until the local pod has a phase, and returns it.
func (w *world) shown(name string, phase corev1.PodPhase) *corev1.Pod {
	w.t.Helper()
	return w.eventually(name, func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

// eventually waits until is returns true for the local pod, and returns the pod.
func (w *world) eventually(name string, is func(*corev1.Pod) bool) *corev1.Pod {
	w.t.Helper()
	var p *corev1.Pod
	require.Eventually(w.t, func() bool {
		p = w.localPod(name)
		return p != nil && is(p)
	}, patience, tick)
	return p
}

// gone waits until neither the pod nor its ShadowPod exists.
func (w *world) gone(name string) {
	w.t.Helper()
	w.withoutShadow(name)
	require.Eventually(w.t, func() bool { return w.localPod(name) == nil }, patience, tick, "the pod is gone")
}

// withoutShadow waits until a pod has no ShadowPod.
func (w *world) withoutShadow(name string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		_, err := w.remoteLiqo.OffloadingV1beta1().ShadowPods("ns-home").Get(w.t.Context(), name, metav1.GetOptions{})
		return kerrors.IsNotFound(err)
	}, patience, tick, "the ShadowPod is gone")
}

// statuses returns the statuses that were written to a local pod, in order.
func (w *world) statuses(name string) (written []corev1.PodStatus) {
	for _, action := range w.local.Actions() {
		update, is := action.(interface{ GetObject() runtime.Object })
		if !is || action.GetSubresource() != "status" || action.GetResource().Resource != "pods" {
			continue
		}
		if p, is := update.GetObject().(*corev1.Pod); is && p.Name == name {
			written = append(written, p.Status)
		}
	}
	return written
}

func running(names ...string) corev1.PodStatus {
	s := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(metav1.Now()), Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
	}}
	for _, name := range names {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	return s
}

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}
