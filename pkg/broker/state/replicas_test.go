package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// readyPods are replicas of one application at q1.
func readyPods(names ...string) (pods []*corev1.Pod) {
	for _, name := range names {
		pod := newPod(name, "1")
		pod.Labels["app"] = "web"
		pod.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: "2026-03-01T12:00:00Z"}
		setReady(pod, corev1.ConditionTrue)
		pods = append(pods, pod)
	}
	return pods
}

func setReady(pod *corev1.Pod, status corev1.ConditionStatus) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
}

// among are replicas of which so many may be unavailable.
func among(most int, pods ...*corev1.Pod) disruption.Replicas {
	return disruption.Replicas{Namespace: "ns", Key: placement.ReplicasOf(pods[0]), Pods: pods, MaxUnavailable: most}
}

func TestWhichReplicasMayMove(t *testing.T) {
	away := func(pods []*corev1.Pod) { setReady(pods[1], corev1.ConditionFalse) }
	for name, tc := range map[string]struct {
		most    int
		change  func(pods []*corev1.Pod)
		may     bool
		because string
	}{
		"all are available":          {1, func([]*corev1.Pod) {}, true, ""},
		"one is not":                 {1, away, false, "maxUnavailable is 1 of 3 replicas, and 1 is unavailable: b"},
		"one is not, and two may be": {2, away, true, ""},
		"one has left its provider": {1, func(pods []*corev1.Pod) {
			delete(pods[2].Labels, v1alpha1.VirtualNodeLabel)
		}, false, "maxUnavailable is 1 of 3 replicas, and 1 is unavailable: c"},
		"none of the others is": {1, func(pods []*corev1.Pod) {
			setReady(pods[2], corev1.ConditionFalse)
			setReady(pods[1], corev1.ConditionUnknown)
		}, false, "maxUnavailable is 1 of 3 replicas, and 2 are unavailable, such as b"},
		"it is not itself, nor is another": {1, func(pods []*corev1.Pod) {
			away(pods)
			setReady(pods[0], corev1.ConditionFalse)
		}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pods := readyPods("a", "b", "c")
			tc.change(pods)
			turn := none().MayMove(pods[0], among(tc.most, pods...))
			require.Equal(t, disruption.Turn{May: tc.may, Because: tc.because, Began: !tc.may}, turn)
		})
	}
}

// The API does not show yet the moves that began a moment ago.
func TestAReplicaThatMayMoveIsUnavailable(t *testing.T) {
	f, pods := none(), readyPods("a", "b")
	all := among(1, pods...)
	require.True(t, f.MayMove(pods[0], all).May)
	require.True(t, f.MayMove(pods[0], all).May, "still")
	turn := f.MayMove(pods[1], all)
	require.Equal(t, disruption.Turn{Because: "maxUnavailable is 1 of 2 replicas, and 1 is unavailable: a", Began: true}, turn)
	turn = f.MayMove(pods[1], all)
	require.False(t, turn.Began, "that is not new")

	// It is evicted, and the pod was read before that.
	f.ObserveEvicted(pods[0], placed("q1"))
	f.ObserveStays(pods[0].UID, true)
	require.False(t, f.MayMove(pods[1], all).May)

	// It is Ready at its next provider.
	pods[0].Labels[v1alpha1.VirtualNodeLabel], pods[0].Labels[v1alpha1.ProviderLabel] = "z1", "z"
	pods[0].Annotations[v1alpha1.AssignedAtAnnotation] = "2026-03-01T12:01:00Z"
	require.True(t, f.MayMove(pods[1], all).May)
	require.Zero(t, f.Counts().Waiting)
}

// A replica that is not Ready needs no permission to move, so it asks again when it has become Ready before it could be
// moved.
func TestAReplicaThatBecomesReadyAsksAgain(t *testing.T) {
	f, pods := none(), readyPods("a", "b")
	setReady(pods[0], corev1.ConditionFalse)
	require.True(t, f.MayMove(pods[0], among(1, pods...)).May)
	setReady(pods[0], corev1.ConditionTrue)
	require.True(t, f.MayMove(pods[1], among(1, pods...)).May)
	require.False(t, f.MayMove(pods[0], among(1, pods...)).May)
}

func TestAReplicaThatStaysGivesItsTurnBack(t *testing.T) {
	for name, gives := range map[string]func(f *Federation, pod *corev1.Pod){
		"the drain has ended": func(f *Federation, pod *corev1.Pod) { f.ObserveStays(pod.UID, true) },
		"it is gone":          func(f *Federation, pod *corev1.Pod) { f.ObserveGone(name(pod), pod.UID) },
		"it has ended":        func(f *Federation, pod *corev1.Pod) { f.ObserveEnded(pod, placed("q1")) },
	} {
		t.Run(name, func(t *testing.T) {
			f, pods := none(), readyPods("a", "b")
			require.True(t, f.MayMove(pods[0], among(1, pods...)).May)
			gives(f, pods[0])
			require.True(t, f.MayMove(pods[1], among(1, pods...)).May)
		})
	}
}

func TestWhoWaitedLongestIsNext(t *testing.T) {
	f, pods := withProviders("q", "z"), readyPods("c", "b", "a", "d")
	other := readyPods("other")[0]
	other.Labels["app"] = "db"
	all := among(1, pods...)
	for _, pod := range pods {
		f.MayMove(pod, all)
	}
	require.Equal(t, 3, f.Counts().Waiting)
	next := func(names ...string) (want []types.NamespacedName) {
		for _, name := range names {
			want = append(want, types.NamespacedName{Namespace: "ns", Name: name})
		}
		return want
	}
	require.Equal(t, next("b"), f.NextToMove(pods[0]))
	require.Empty(t, f.NextToMove(pods[1]), "a pod that waits does not requeue itself")
	require.Empty(t, f.NextToMove(other), "they are not its replicas")
	require.Equal(t, next("b"), f.NextToMoveIn("ns"))
	require.Empty(t, f.NextToMoveIn("other"))
	known, _ := f.Provider("q")
	require.Equal(t, disruption.Waiting{
		Pods: 3, Example: "ns/a: maxUnavailable is 1 of 4 replicas, and 1 is unavailable: c",
	}, known.MovesWaiting)
	known, _ = f.Provider("z")
	require.Zero(t, known.MovesWaiting)

	f.ObserveEvicted(pods[1], placed("q1")) // Its provider refuses it.
	require.Equal(t, next("a"), f.NextToMove(pods[0]))
	f.ObserveEnded(pods[2], placed("q1"))
	require.Equal(t, next("d"), f.NextToMove(pods[0]))
	f.ObserveGone(name(pods[3]), "")
	require.Empty(t, f.NextToMove(pods[0]))
	require.Zero(t, f.turns.Waiting())
}

// A pod is relabelled while it waits.
func TestAPodWaitsAmongItsPresentReplicas(t *testing.T) {
	f, pods := none(), readyPods("a", "b", "c")
	setReady(pods[0], corev1.ConditionFalse)
	require.False(t, f.MayMove(pods[1], among(1, pods...)).May)
	pods[1].Labels["app"], pods[2].Labels["app"] = "db", "db"
	setReady(pods[2], corev1.ConditionFalse)
	require.False(t, f.MayMove(pods[1], among(1, pods[1], pods[2])).May)
	require.Empty(t, f.NextToMove(pods[0]))
	setReady(pods[2], corev1.ConditionTrue)
	require.Len(t, f.NextToMove(pods[2]), 1)
	require.Equal(t, 1, f.Counts().Waiting)
}

func TestATerminatingVirtualNodeIsKnownAsOne(t *testing.T) {
	f := none()
	f.SetProvider("q", ProviderSpec{VirtualNodes: map[string]bool{"q1": true, "q2": false}}, &v1alpha1.ProviderClusterStatus{})
	f.ObserveProbe("q", Probe{Began: time.Now(), Ended: time.Now(), Answered: true})
	require.Equal(t, VirtualNode{Known: true, Confirmed: true, Draining: true, Terminating: true}, f.VirtualNode(placed("q1")))
	require.Equal(t, VirtualNode{Known: true, Confirmed: true}, f.VirtualNode(placed("q2")))
}
