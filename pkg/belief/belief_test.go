package belief

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief/moves"
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/tries"
)

// none is a Belief without providers, whose clock is that of the synctest bubble.
func none() *Belief {
	return New(Config{
		Clock: clock.RealClock{}, MovesAtOnce: 2, SuspicionWindow: time.Minute, ProbeInterval: 5 * time.Second,
	})
}

// withProviders has a provider for each name, "q" with the VirtualNode "q1" of two CPUs.
func withProviders(names ...string) *Belief {
	b := none()
	for _, name := range names {
		spec := ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{name + "1": false}}
		b.SetProvider(name, spec, &v1alpha1.ProviderClusterStatus{})
		b.Schedule(usable(name))
	}
	return b
}

func usable(name string) scheduler.Provider {
	return scheduler.Provider{
		ID: name, Enabled: true, Ready: true, Namespaces: sets.New("ns"),
		Slices: []scheduler.Slice{{
			VirtualNode: name + "1", Granted: resources.Amounts{corev1.ResourceCPU: 2000},
		}},
	}
}

// placed is a VirtualNode, whose name begins with the id of its provider.
func placed(virtualNode string) scheduler.Place {
	return scheduler.Place{Provider: virtualNode[:1], VirtualNode: virtualNode}
}

func newPod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.VirtualNodeLabel: "q1", v1alpha1.ProviderLabel: "q"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

func (b *Belief) decide(of *corev1.Pod) (virtualNode string) {
	var d scheduler.Decision
	b.Decide((&placement.Criteria{}).Pod(of, &corev1.Namespace{}), nil, &d)
	return d.VirtualNode
}

func name(of *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: of.Namespace, Name: of.Name}
}

// bubble runs a test with a clock that moves only while the test sleeps.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func TestADecisionReservesItsRoom(t *testing.T) {
	b := withProviders("q")
	first, second, third := newPod("first", "1500m"), newPod("second", "1"), newPod("third", "500m")
	require.Equal(t, "q1", b.decide(first))
	pending, uncertain := b.PendingAssignment(first.UID)
	require.True(t, pending)
	require.False(t, uncertain)
	require.Empty(t, b.decide(second), "the API has not confirmed the first one, but its room is taken")
	require.Equal(t, "q1", b.decide(third))
	require.Equal(t, 1, b.Counts().Unassigned)

	b.ObserveUncertain(first.UID)
	_, uncertain = b.PendingAssignment(first.UID)
	require.True(t, uncertain)
	require.Empty(t, b.decide(second), "what may have been written keeps its room")

	b.Unreserve(first.UID)
	pending, uncertain = b.PendingAssignment(first.UID)
	require.False(t, pending || uncertain)
	require.Equal(t, "q1", b.decide(second), "what could not be written takes no room")
	require.Zero(t, b.Counts().Unassigned)
}

func TestTheAPIConfirmsAndReleases(t *testing.T) {
	b := withProviders("q")
	pod := newPod("pod", "2")
	require.Equal(t, "q1", b.decide(pod))
	b.ObserveAssigned(pod, placed("q1"))
	pending, _ := b.PendingAssignment(pod.UID)
	require.False(t, pending)
	b.ObserveAssigned(pod, placed("q1"))
	require.Equal(t, Counts{Assigned: 1}, b.Counts(), "seen twice, counted once")

	require.False(t, b.ObserveGone(name(pod), "another pod of that name"))
	require.True(t, b.ObserveGone(name(pod), pod.UID))
	require.False(t, b.ObserveGone(name(pod), ""), "only once")
	require.Equal(t, "q1", b.decide(newPod("next", "2")))
}

// The deletion of a pod and the creation of the next one of its name may be seen as one change.
func TestAPodOfTheSameNameTakesTheRoomOfTheOneBefore(t *testing.T) {
	b := withProviders("q")
	first, again := newPod("db-0", "2"), newPod("db-0", "2")
	again.UID = "again"
	require.Equal(t, "q1", b.decide(first))
	require.Equal(t, "q1", b.decide(again), "the first one's room is free again")
	require.Equal(t, Counts{Assigned: 1}, b.Counts())
	pending, _ := b.PendingAssignment(first.UID)
	require.False(t, pending)
}

// A pod that is forgotten leaves nothing behind, whatever was observed of it.
func TestNothingIsLeftOfAPodThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		for _, pod := range []*corev1.Pod{newPod("a", "1"), newPod("b", "1"), newPod("c", "1")} {
			b.decide(pod)
			b.ObserveUncertain(pod.UID)
			b.ObserveAssigned(pod, placed("q1"))
			b.ObserveStarted(pod, time.Second)
			b.ObserveRunning(pod)
			b.MoveDelay(pod.UID)
			b.ObserveEvicted(pod, placed("q1"))
			setReady(pod, corev1.ConditionTrue)
			require.False(t, b.MayMove(pod, moves.Replicas{Namespace: "ns", Key: "k", Pods: []*corev1.Pod{pod}}).May)
			b.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: Refused, Until: time.Now().Add(time.Minute)})
			b.ObserveLeft(pod, placed("q1"))
		}
		for _, pod := range []string{"a", "b", "c"} {
			require.True(t, b.ObserveGone(types.NamespacedName{Namespace: "ns", Name: pod}, ""))
		}
		require.Zero(t, b.Counts())
		require.Empty(t, b.pods)
		require.Empty(t, b.byName)
		require.Zero(t, b.turns.Waiting())
		again := newPod("a", "2")
		require.False(t, b.HasLeft(again.UID, placed("q1")))
		require.Zero(t, b.EvictedAt(again.UID))
		require.Equal(t, "q1", b.decide(again), "its refusals are forgotten, too")
	})
}

// Liqo's quota counts a ShadowPod, whatever its phase, until it is deleted.
func TestAPodThatHasEndedTakesRoomUntilItIsGone(t *testing.T) {
	b := withProviders("q")
	pod, next := newPod("pod", "1500m"), newPod("next", "1")
	require.Equal(t, "q1", b.decide(pod))
	b.ObserveAssigned(pod, placed("q1"))
	pod.Status.Phase = corev1.PodSucceeded
	require.True(t, b.ObserveEnded(pod, placed("q1")))
	require.False(t, b.ObserveEnded(pod, placed("q1")), "only once")
	require.Empty(t, b.decide(next))
	require.Zero(t, b.Counts().Assigned, "it does not run")
	known, _ := b.Provider("q")
	require.Equal(t, Assigned{Resources: resources.Amounts{corev1.ResourceCPU: 1500}}, known.Assigned["q1"])

	require.True(t, b.ObserveGone(name(pod), pod.UID))
	require.Equal(t, "q1", b.decide(next))
}

// What a pod waited for does not concern it any more.
func TestNothingButItsRoomIsKeptOfAPodThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		first, pod := newPod("first", "1"), newPod("pod", "1")
		for _, uid := range []types.UID{first.UID, "another"} {
			require.Zero(t, b.MoveDelay(uid))
		}
		b.ObserveAssigned(pod, placed("q1"))
		require.Positive(t, b.MoveDelay(pod.UID))
		b.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: Refused, Until: time.Now().Add(time.Minute)})
		b.ObserveEvicted(pod, placed("q1"))
		pod.Status.Phase = corev1.PodFailed
		b.ObserveEnded(pod, placed("q1"))
		require.Zero(t, b.Counts())
		require.Zero(t, b.refusals())
	})
}

// Otherwise it would go back to the provider that it comes from.
func TestAMovingPodKeepsItsRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		pod := newPod("pod", "1")
		require.Equal(t, "q1", b.decide(pod))
		b.ObserveAssigned(pod, placed("q1"))
		b.ObserveEvicted(pod, placed("q1"))
		triedAt(pod, "q1", time.Minute)
		b.ObserveAssigned(pod, placed("q1"))
		require.False(t, b.HasLeft(pod.UID, placed("q1")))
		b.ObserveLeft(pod, placed("q1"))
		require.True(t, b.HasLeft(pod.UID, placed("q1")))
		b.ObserveAssigned(pod, placed("q1"))
		require.False(t, b.HasLeft(pod.UID, placed("q1")), "it has come back")
		b.ObserveLeft(pod, placed("q1"))
		require.Empty(t, b.decide(pod))
		require.Equal(t, "q1", b.decide(newPod("other", "2")), "it takes no room there any more")
		b.ExpireRefusals()
		require.NotZero(t, b.refusals())
		time.Sleep(time.Minute)
		b.ExpireRefusals()
		require.Zero(t, b.refusals(), "it is tried again")
	})
}

// A pod that waits for room is not tried again and again because a refusal of before has expired.
func TestARefusalExpiresOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		require.Equal(t, "q1", b.decide(newPod("other", "2")))
		pod := newPod("pod", "2")
		triedAt(pod, "q1", time.Minute)
		require.Empty(t, b.decide(pod))
		tries := 0
		for range 120 {
			time.Sleep(time.Second)
			b.ExpireRefusals()
			names, _ := b.Wake()
			for range names {
				require.Empty(t, b.decide(pod))
				tries++
			}
		}
		require.LessOrEqual(t, tries, 1+120/30, "when it expires, and every 30 to 45 s")
	})
}

// refusals returns how many refusals are remembered.
func (b *Belief) refusals() int {
	count := len(b.withheld)
	for _, p := range b.pods {
		count += len(p.refusedUntil)
	}
	return count
}

// triedAt has it written on a pod that it is not sent to a VirtualNode for so long.
func triedAt(pod *corev1.Pod, virtualNode string, long time.Duration) {
	pod.Annotations = map[string]string{v1alpha1.TriesAnnotation: tries.Tries{virtualNode: {Count: 1, Until: time.Now().Add(long)}}.Annotation()}
}

// One pod that starts nowhere would spoil the failure rate of all providers.
func TestAPodIsOneFailureOfAProvider(t *testing.T) {
	b, pod := withProviders("q"), newPod("pod", "1")
	for i := range 5 {
		b.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: PendingTooLong, Again: i > 0})
	}
	q, _ := b.Provider("q")
	require.Equal(t, int64(1), q.KPIs.Failed)
	require.Equal(t, 5, q.Refusals[PendingTooLong])
}

func TestARefusalIsRememberedAndWithholdsTheAmount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		pod, other := newPod("pod", "1500m"), newPod("other", "1")
		require.Equal(t, "q1", b.decide(pod))
		b.Unreserve(pod.UID)
		b.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: Refused, Until: time.Now().Add(time.Minute), LacksRoom: true})
		triedAt(pod, "q1", time.Minute)
		require.Empty(t, b.decide(pod))
		require.Empty(t, b.decide(other), "the provider lacks for one pod what it lacks for the other")
		require.Equal(t, "q1", b.decide(newPod("small", "500m")))

		time.Sleep(59 * time.Second)
		b.ExpireRefusals()
		require.NotZero(t, b.refusals())
		time.Sleep(time.Second)
		b.ExpireRefusals()
		require.Zero(t, b.refusals())
		require.Equal(t, "q1", b.decide(pod))
		q, known := b.Provider("q")
		require.True(t, known)
		require.Equal(t, int64(1), q.KPIs.Failed)
		require.Equal(t, map[RefusalReason]int{Refused: 1, PendingTooLong: 0}, q.Refusals)
	})
}

// What is withheld is of the resource that the provider names, if the pod requests it.
func TestOnlyTheResourceThatIsLackingIsWithheld(t *testing.T) {
	for lacks, want := range map[corev1.ResourceName]resources.Amounts{
		"memory":         {corev1.ResourceMemory: 1 << 30},
		"cpu":            {corev1.ResourceCPU: 1500},
		"nvidia.com/gpu": {corev1.ResourceCPU: 1500, corev1.ResourceMemory: 1 << 30},
		"":               {corev1.ResourceCPU: 1500, corev1.ResourceMemory: 1 << 30},
	} {
		t.Run(string(lacks), func(t *testing.T) {
			b := withProviders("q")
			pod := newPod("pod", "1500m")
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Gi")
			b.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: Refused, Until: noon, LacksRoom: true, Lacks: lacks})
			withheld, _ := b.state.Assigned(placed("q1"))
			require.Equal(t, want, withheld)
		})
	}
}

// Liqo forwards what a pod requested when its ShadowPod was made, and no resize.
func TestAResizedPodTakesWhatWasForwarded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		pod := newPod("pod", "1500m")
		require.Equal(t, "q1", b.decide(pod))
		taken := func() int64 {
			amounts, _ := b.state.Assigned(placed("q1"))
			return amounts[corev1.ResourceCPU]
		}
		smaller, larger := newPod("pod", "500m"), newPod("pod", "1800m")
		b.ObserveAssigned(smaller, placed("q1"))
		require.EqualValues(t, 1500, taken())
		require.Empty(t, b.decide(newPod("other", "1")), "the quota of the provider counts 1500m")
		b.ObserveAssigned(larger, placed("q1"))
		require.EqualValues(t, 1800, taken(), "it may have been resized before it was forwarded")

		huge := newPod("pod", "1000")
		huge.Status.Phase = corev1.PodRunning
		b.ObserveAssigned(huge, placed("q1"))
		require.EqualValues(t, 1800, taken(), "it runs with what was forwarded")
		smaller.Status.Phase = corev1.PodSucceeded
		b.ObserveEnded(smaller, placed("q1"))
		amounts, pods := b.state.Assigned(placed("q1"))
		require.EqualValues(t, 1800, amounts[corev1.ResourceCPU])
		require.Zero(t, pods)

		b.ObserveLeft(smaller, placed("q1"))
		smaller.Status.Phase = corev1.PodPending
		b.ObserveAssigned(smaller, placed("q1"))
		require.EqualValues(t, 500, taken(), "it is forwarded anew")
	})
}

// A refusal of a VirtualNode whose provider is gone counts for no provider.
func TestARefusalOfAnUnknownProviderIsNotCounted(t *testing.T) {
	b := withProviders("q")
	b.ObserveRefused(newPod("pod", "1"), Refusal{By: placed("gone"), Reason: Refused})
	q, _ := b.Provider("q")
	require.Zero(t, q.Refusals[Refused])
}

func TestAMoveLastsUntilTheNextAssignmentIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		pod := newPod("pod", "1")
		b.ObserveAssigned(pod, placed("q1"))
		b.ObserveEvicted(pod, placed("q1"))
		require.Equal(t, 1, b.Counts().Moving)
		time.Sleep(3 * time.Second)
		took, moved := b.ObserveAssignmentWritten(pod.UID)
		require.True(t, moved)
		require.Equal(t, 3*time.Second, took)
		require.Zero(t, b.Counts().Moving)
		_, moved = b.ObserveAssignmentWritten(pod.UID)
		require.False(t, moved, "it is counted once")

		b.ObserveEvicted(pod, placed("q1"))
		require.Equal(t, "q1", b.decide(pod))
		b.ObserveUncertain(pod.UID)
		require.Equal(t, 1, b.Counts().Moving)
		b.ObserveAssigned(pod, placed("q1"))
		require.Zero(t, b.Counts().Moving, "it had been written after all")

		b.ObserveEvicted(pod, placed("q1"))
		b.ObserveAssigned(pod, placed("q1"))
		require.Equal(t, 1, b.Counts().Moving, "the cache is late")
		require.True(t, b.ObserveGone(name(pod), pod.UID))
		require.Zero(t, b.Counts().Moving)
	})
}

func TestDelayedMovesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		require.Zero(t, b.MoveDelay("first"))
		require.Zero(t, b.MoveDelay("second"))
		require.NotZero(t, b.MoveDelay("third"))
		require.NotZero(t, b.MoveDelay("stays"))
		require.Equal(t, 2, b.Counts().Delayed)
		b.ObserveStays("stays", false)
		b.ObserveStays("first", false)
		require.NotZero(t, b.MoveDelay("third"), "the first is assigned anew, but does not run")
		b.ObserveStays("first", true)
		require.Zero(t, b.MoveDelay("third"))
		require.Zero(t, b.Counts().Delayed)
	})
}

func TestAStartIsCountedOnceForEachAssignment(t *testing.T) {
	b := withProviders("q")
	pod := newPod("pod", "1")
	b.ObserveAssigned(pod, placed("q1"))
	require.True(t, b.ObserveStarted(pod, 2*time.Second))
	require.False(t, b.ObserveStarted(pod, 2*time.Hour))
	q, _ := b.Provider("q")
	require.Equal(t, &v1alpha1.PodStart{P50Milliseconds: 2000, P90Milliseconds: 2000}, q.KPIs.PodStart)
	require.Equal(t, "q1", b.decide(pod))
	require.True(t, b.ObserveStarted(pod, time.Second), "at the next provider")
}

// Until the next virtual kubelet reports, the status is from where the pod was before.
func TestAMovedPodRunsWhenTheNextProviderReportsIt(t *testing.T) {
	running := func(since time.Time) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)},
		}}}
	}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b := withProviders("q")
	pod := newPod("pod", "1")
	pod.Status.ContainerStatuses = running(noon)
	require.True(t, b.ObserveRunning(pod))
	b.ObserveEvicted(pod, placed("q1"))
	require.Equal(t, "q1", b.decide(pod))
	require.False(t, b.ObserveRunning(pod), "the old status")
	pod.Status.ContainerStatuses = running(noon.Add(-time.Minute))
	require.True(t, b.ObserveRunning(pod), "the clock there is behind")
	pod.Status.ContainerStatuses = running(noon.Add(time.Minute))
	require.False(t, b.ObserveRunning(pod), "a container was restarted")

	never := newPod("never", "1")
	b.ObserveEvicted(never, placed("q1"))
	require.False(t, b.ObserveRunning(never), "no container runs yet")
}

// during is a clock that calls a function when it is read for the second time: Decide reads it before it takes the copy on
// which it evaluates expressions, and again while it does so.
type during struct {
	clock.RealClock
	reads int
	call  func()
}

func (d *during) Now() time.Time {
	if d.reads++; d.reads == 2 {
		d.call()
	}
	return d.RealClock.Now()
}

// Expressions are evaluated without the lock: what is observed meanwhile counts.
func TestNoRoomIsReservedForAPodThatIsGoneMeanwhile(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(b *Belief, pod *corev1.Pod)
		want      string
		cpus      map[string]int64
	}{
		"nothing happens": {
			func(*Belief, *corev1.Pod) {}, "p1", map[string]int64{"p1": 1500, "q1": 0},
		},
		"it is deleted": {
			func(b *Belief, pod *corev1.Pod) { b.ObserveGone(name(pod), pod.UID) }, "", map[string]int64{"p1": 0, "q1": 0},
		},
		"it has ended where it was before": {func(b *Belief, pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodSucceeded
			b.ObserveEnded(pod, placed("q1"))
		}, "", map[string]int64{"p1": 0, "q1": 1500}},
	} {
		t.Run(name, func(t *testing.T) {
			b, pod := withProviders("p", "q"), newPod("pod", "1500m")
			filter, err := criteria.NewFilter("provider.id == 'p'")
			require.NoError(t, err)
			of := (&placement.Criteria{}).Pod(pod, &corev1.Namespace{})
			of.Expression = filter
			meanwhile := &during{call: func() { tc.meanwhile(b, pod) }}
			b.cfg.Clock = meanwhile
			var d scheduler.Decision
			b.Decide(of, nil, &d)
			require.GreaterOrEqual(t, meanwhile.reads, 2)
			require.Equal(t, tc.want, d.VirtualNode)
			pending, _ := b.PendingAssignment(pod.UID)
			require.Equal(t, tc.want != "", pending)
			require.Zero(t, b.Counts().Unassigned)
			for virtualNode, want := range tc.cpus {
				amounts, _ := b.state.Assigned(placed(virtualNode))
				require.Equal(t, want, amounts[corev1.ResourceCPU], virtualNode)
			}
		})
	}
}

// A filter of a tenant may take milliseconds for every decision. Nothing else waits for it.
func TestExpressionsAreEvaluatedWithoutTheLock(t *testing.T) {
	b := none()
	for i := range 50 {
		name := fmt.Sprintf("q%02d-", i)
		b.SetProvider(name, ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{name + "1": false}}, &v1alpha1.ProviderClusterStatus{})
		b.Schedule(usable(name))
	}
	slow, err := criteria.NewFilter("provider.id.split('').all(a, provider.id.split('').all(b, provider.id.split('').all(c, a + b + c != '')))")
	require.NoError(t, err)
	of := (&placement.Criteria{}).Pod(newPod("a", "1"), &corev1.Namespace{})
	of.Expression = slow

	stop, decided := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var all []time.Duration
		for {
			select {
			case <-stop:
				decided <- all
				return
			default:
				began := time.Now()
				var d scheduler.Decision
				b.Decide(of, nil, &d)
				b.Unreserve(of.UID)
				all = append(all, time.Since(began))
			}
		}
	}()
	var waited []time.Duration
	for range 200 {
		time.Sleep(time.Millisecond)
		began := time.Now()
		b.Known("q01-")
		waited = append(waited, time.Since(began))
	}
	close(stop)
	decisions := <-decided
	slices.Sort(decisions)
	slices.Sort(waited)
	require.Less(t, waited[len(waited)/2], decisions[len(decisions)/2]/10, "the median of waiting, of decisions")
}
