package pods

import (
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/providers"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/restore"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/termination"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// movesAtOnce is so many that only the test of this limit meets it.
const movesAtOnce = 20

// reclaimAfter is how long pods run beyond the grant of their consumer.
const reclaimAfter = 2 * time.Minute

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// assignedPod is a pod that was assigned to VirtualNode q1 five minutes before noon.
func assignedPod(phase corev1.PodPhase, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "pod", UID: "uid",
			Labels:      map[string]string{v1alpha1.VirtualNodeLabel: "q1", v1alpha1.ProviderLabel: "q"},
			Annotations: map[string]string{v1alpha1.AssignedAtAnnotation: noon.Add(-5 * time.Minute).Format(time.RFC3339Nano)},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// placed is a VirtualNode, whose name begins with the id of its provider.
func placed(virtualNode string) scheduler.Place {
	return scheduler.Place{Provider: virtualNode[:1], VirtualNode: virtualNode}
}

// leaves has the pod leave a VirtualNode, whose name begins with the id of its provider.
func leaves(virtualNode string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels = nil
		pod.Annotations[v1alpha1.MovingFromAnnotation] = virtualNode
		pod.Annotations[v1alpha1.MovingFromProviderAnnotation] = virtualNode[:1]
	}
}

// left is leaves, once the virtual kubelet has released the pod.
func left(virtualNode string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		leaves(virtualNode)(pod)
		pod.Annotations[v1alpha1.ReleasedAnnotation] = v1alpha1.Assignment(virtualNode, pod)
	}
}

func deleting(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: noon} }

func refusedBy(virtualNode string, at time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type:   corev1.PodConditionType(v1alpha1.ConditionRefusedPrefix + virtualNode),
			Status: corev1.ConditionTrue, Reason: refusal.QuotaExceeded, LastTransitionTime: metav1.NewTime(at),
		}}
	}
}

// waits has the container of a pod wait for a reason.
func waits(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		}}
	}
}

func initContainer(pod *corev1.Pod) {
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "download", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
}

func sandboxReady(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue,
	})
}

// newController is the controller of a broker that just began to lead, in a cluster of these objects and the namespace
// ns of consumer c1. It knows the provider q, which can be reached, with the VirtualNode q1 of two CPUs, unless with is
// false.
func newController(t *testing.T, with bool, funcs interceptor.Funcs, tracer trace.Tracer, objects ...client.Object) *Controller {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	objects = append(objects, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: "ns", Labels: map[string]string{"liqo.io/remote-cluster-id": "c1"},
			Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/c1"},
		},
	}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-q", Labels: map[string]string{
		"liqo.io/remote-cluster-id": "q", "liqo.io/tenant-namespace": "true",
	}}})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&corev1.Pod{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Pod{}, replicasIndex, indexReplicas).WithIndex(&corev1.Pod{}, claimsIndex, indexClaims).
		WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string {
			return []string{o.(*corev1.Event).InvolvedObject.Name}
		}).
		WithInterceptorFuncs(funcs).Build()
	return newControllerOf(t, c, with, tracer)
}

// newControllerOf is newController for an existing cluster: the cluster of a broker that was restarted.
func newControllerOf(t *testing.T, c client.Client, with bool, tracer trace.Tracer) *Controller {
	t.Helper()
	known := state.New(state.Config{
		Clock: clock.RealClock{}, MovesAtOnce: movesAtOnce, SuspicionWindow: time.Minute, ReclaimAfter: reclaimAfter,
	})
	if with {
		spec := state.ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}
		known.SetProvider("q", spec, &v1alpha1.ProviderClusterStatus{})
		known.ObserveProbe("q", state.Probe{Began: time.Now(), Ended: time.Now(), Answered: true})
		known.Schedule(scheduler.Provider{
			ID: "q", Enabled: true, Ready: true, Namespaces: sets.New("ns"),
			Slices: []scheduler.Slice{{VirtualNode: "q1", Granted: resources.Amounts{corev1.ResourceCPU: 2000}}},
		})
	}
	queue, connections := &requeue.Queue{}, remote.NewConnections(kubefake.NewClientset(), nil, "")
	of := providers.New(providers.Config{
		Log: testr.New(t), Clock: clock.RealClock{}, Client: c, Selector: labels.Everything(), State: known, Connections: connections,
	})
	gone := &termination.Gone{Log: testr.New(t), Clock: clock.RealClock{}, Client: c, Connections: connections}
	made := New(Config{
		Log: testr.New(t), Clock: clock.RealClock{}, Client: c, Live: c, Events: record.NewFakeRecorder(100), Tracer: tracer,
		Metrics: NewMetrics(nil, known), State: known, Restorer: restore.New(c, c, "", known, clock.RealClock{}),
		Checker: termination.NewChecker(termination.CheckerConfig{
			Log: testr.New(t), Connections: connections, Queue: queue, Timeout: time.Minute, Connect: gone.Connect,
		}),
		Policies: &placement.Policies{
			Client: c, Programs: cel.NewCache(1 << 20), Defaults: placement.Rules{Failover: v1alpha1.FailoverMove},
		},
		Sibling: of.Sibling, RemoteNamespace: gone.RemoteNamespace, Queue: queue,
		Requeue: requeue.NewPods(queue, c, known, testr.New(t)), Providers: &requeue.Queue{},
	})
	made.Policies.Nowhere = made.Nowhere
	return made
}

// cpus is a container that requests so much CPU.
func cpus(amount string) []corev1.Container {
	return []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)},
	}}}
}

// leadsSince has the controller lead since then.
func (c *Controller) leadsSince(t *testing.T, then time.Time) {
	t.Helper()
	c.Restorer = restore.New(c.Client, c.Client, "", c.State, clocktesting.NewFakePassiveClock(then))
	require.NoError(t, c.Restorer.Restore(t.Context()))
}
