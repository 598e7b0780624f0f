// Package scheduling compares the broker's scheduler with kube-scheduler's.
package scheduling

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
)

const (
	// places is the number of providers, or nodes; pods is the number of pods that run there.
	places, pods = 100, 10_000
	// millis is the CPU request of a pod; each place has twice the capacity that its pods request.
	millis, capacity = 500, 2 * pods / places
)

// deciders decide about one pod again and again, and return its place.
var deciders = []struct {
	name string
	make func(testing.TB) (decide func() string)
}{{"broker", broker}, {"broker-constraints", constrained}, {"kube-scheduler", kube}}

// BenchmarkDecision measures one decision about a pod among 100 places with 10,000 pods: by the broker's scheduler with
// the default policy, and by the scheduling cycle of kube-scheduler with its default plugins (filters and scores,
// without the binding). Neither reserves capacity, so kube-scheduler's snapshot never changes. kube-scheduler uses up
// to 16 goroutines, the broker one. Both spread the pods of an application.
func BenchmarkDecision(b *testing.B) {
	for _, d := range deciders {
		b.Run(d.name, func(b *testing.B) {
			decide := d.make(b)
			b.ReportAllocs()
			for b.Loop() {
				decide()
			}
		})
	}
}

func TestBothFindAPlace(t *testing.T) {
	for _, d := range deciders {
		require.NotEmpty(t, d.make(t)(), d.name)
	}
}

func broker(testing.TB) func() string { return decider(func(*corev1.Pod) {}) }

// constrained decides about a pod that is spread over ten zones and has a required node affinity.
func constrained(testing.TB) func() string {
	return decider(func(pod *corev1.Pod) {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app(7)}},
		}}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelTopologyRegion, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"us"},
				}},
			}}},
		}}
	})
}

// decider decides about a pod of the broker's that is changed.
func decider(change func(*corev1.Pod)) func() string {
	s := scheduler.NewState()
	for i := range places {
		s.SetProvider(scheduler.Provider{
			ID: place(i), Enabled: true, Ready: true, Namespaces: sets.New("ns"),
			Attributes: map[string]string{"region": "eu", "zone": strconv.Itoa(i % 10)}, Slices: []scheduler.Slice{{
				VirtualNode: place(i),
				Granted: resources.Amounts{
					corev1.ResourceCPU: capacity * millis, corev1.ResourceMemory: capacity << 30, corev1.ResourcePods: capacity,
				},
			}},
		})
	}
	requests := resources.Amounts{corev1.ResourceCPU: millis, corev1.ResourceMemory: 1 << 30, corev1.ResourcePods: 1}
	for i := range pods {
		s.Assign(scheduler.Assignment{
			UID: types.UID(strconv.Itoa(i)), Place: scheduler.Place{Provider: place(i % places), VirtualNode: place(i % places)},
			App: app(i), Requests: requests, Peer: constraints.PeerOf(newPod(strconv.Itoa(i), app(i)), nil),
		})
	}
	of := newPod("new", app(7))
	change(of)
	own := constraints.Of(of, nil)
	pod := &scheduler.Pod{
		UID: "new", Namespace: "ns", App: app(7), Labels: of.Labels, Requests: requests,
		Constraints: own, Peer: constraints.PeerOf(of, own),
	}
	var d scheduler.Decision
	return func() string {
		d = s.Decide(time.Unix(0, 0), pod, nil)
		return d.Provider
	}
}

func kube(tb testing.TB) func() string {
	logger := ktesting.NewLogger(tb, ktesting.NewConfig(ktesting.Verbosity(0)))
	ctx := klog.NewContext(tb.Context(), logger)
	client := fake.NewClientset(&corev1.Service{ // kube-scheduler spreads the pods of a Service by default.
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: app(7)}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": app(7)}},
	})
	informers := kubescheduler.NewInformerFactory(client, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	tb.Cleanup(broadcaster.Shutdown)
	s, err := kubescheduler.New(ctx, client, informers, nil, profile.NewRecorderFactory(broadcaster))
	require.NoError(tb, err)
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	for i := range places {
		s.Cache.AddNode(logger, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: place(i), Labels: map[string]string{corev1.LabelHostname: place(i)}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(capacity*millis, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(capacity<<30, resource.BinarySI),
				corev1.ResourcePods:   *resource.NewQuantity(capacity, resource.DecimalSI),
			}},
		})
	}
	for i := range pods {
		pod := newPod(strconv.Itoa(i), app(i))
		pod.Spec.NodeName = place(i % places)
		require.NoError(tb, s.Cache.AddPod(logger, pod))
	}
	pod := newPod("new", app(7))
	return func() string {
		result, err := s.SchedulePod(ctx, s.Profiles[corev1.DefaultSchedulerName], framework.NewCycleState(), pod)
		require.NoError(tb, err)
		return result.SuggestedHost
	}
}

func place(i int) string { return fmt.Sprintf("p%03d", i) }

func app(i int) string { return "app-" + strconv.Itoa(i%500) }

func newPod(name, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Containers: []corev1.Container{{
			Name: "main", Image: "web",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(millis, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(1<<30, resource.BinarySI),
			}},
		}}},
	}
}
