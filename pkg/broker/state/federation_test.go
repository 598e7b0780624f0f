package state

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
	"github.com/capacitorset/liqo-broker-vk/pkg/backoff"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// none returns a Federation without providers, whose clock is the clock of the synctest bubble.
func none() *Federation {
	return New(Config{
		Clock: clock.RealClock{}, MovesAtOnce: 2, SuspicionWindow: time.Minute, ProbeInterval: 5 * time.Second,
	})
}

// withProviders has a provider for each name, "q" with the VirtualNode "q1" of two CPUs.
func withProviders(names ...string) *Federation {
	f := none()
	for _, name := range names {
		spec := ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{name + "1": false}}
		f.SetProvider(name, spec, &v1alpha1.ProviderClusterStatus{})
		f.Schedule(usable(name))
	}
	return f
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
			Namespace: "ns", Name: name, UID: types.UID(name),
			Labels: map[string]string{v1alpha1.VirtualNodeLabel: "q1", v1alpha1.ProviderLabel: "q"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

func (f *Federation) decide(of *corev1.Pod) (virtualNode string) {
	d := f.Assume((&placement.Criteria{}).Pod(of, &corev1.Namespace{}), nil)
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
	f := withProviders("q")
	first, second, third := newPod("first", "1500m"), newPod("second", "1"), newPod("third", "500m")
	require.Equal(t, "q1", f.decide(first))
	assumed, uncertain := f.Pod(first.UID).Assumed, f.Pod(first.UID).Uncertain
	require.True(t, assumed)
	require.False(t, uncertain)
	require.Empty(t, f.decide(second), "the API has not confirmed the first one, but its room is taken")
	require.Equal(t, "q1", f.decide(third))
	require.Equal(t, 1, f.Counts().Unassigned)

	f.ObserveUncertain(first.UID)
	uncertain = f.Pod(first.UID).Uncertain
	require.True(t, uncertain)
	require.Empty(t, f.decide(second), "what may have been written keeps its room")

	f.Forget(first.UID)
	assumed, uncertain = f.Pod(first.UID).Assumed, f.Pod(first.UID).Uncertain
	require.False(t, assumed || uncertain)
	require.Equal(t, "q1", f.decide(second), "what could not be written takes no room")
	require.Zero(t, f.Counts().Unassigned)
}

func TestTheAPIConfirmsAndReleases(t *testing.T) {
	f := withProviders("q")
	pod := newPod("pod", "2")
	require.Equal(t, "q1", f.decide(pod))
	f.ObserveAssigned(pod, placed("q1"))
	assumed := f.Pod(pod.UID).Assumed
	require.False(t, assumed)
	f.ObserveAssigned(pod, placed("q1"))
	require.Equal(t, Counts{Assigned: 1}, f.Counts(), "seen twice, counted once")

	require.False(t, f.ObserveGone(name(pod), "another pod of that name"))
	require.True(t, f.ObserveGone(name(pod), pod.UID))
	require.False(t, f.ObserveGone(name(pod), ""), "only once")
	require.Equal(t, "q1", f.decide(newPod("next", "2")))
}

// The deletion of a pod and the creation of the next one of its name may be seen as one change.
func TestAPodOfTheSameNameTakesTheRoomOfTheOneBefore(t *testing.T) {
	f := withProviders("q")
	first, again := newPod("db-0", "2"), newPod("db-0", "2")
	again.UID = "again"
	require.Equal(t, "q1", f.decide(first))
	require.Equal(t, "q1", f.decide(again), "the first one's room is free again")
	require.Equal(t, Counts{Assigned: 1}, f.Counts())
	assumed := f.Pod(first.UID).Assumed
	require.False(t, assumed)
}

// A pod that is forgotten leaves no state behind, after any observations of it.
func TestNothingIsLeftOfAPodThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		for _, pod := range []*corev1.Pod{newPod("a", "1"), newPod("b", "1"), newPod("c", "1")} {
			f.decide(pod)
			f.ObserveUncertain(pod.UID)
			f.ObserveAssigned(pod, placed("q1"))
			f.ObserveStarted(pod, time.Second)
			f.ObserveRunning(pod)
			f.MoveDelay(pod.UID)
			f.ObserveEvicted(pod, placed("q1"))
			setReady(pod, corev1.ConditionTrue)
			require.False(t, f.MayMove(pod, disruption.Replicas{Namespace: "ns", Key: "k", Pods: []*corev1.Pod{pod}}).May)
			f.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: Refused, Until: time.Now().Add(time.Minute)})
			f.ObserveLeft(pod, placed("q1"))
		}
		for _, pod := range []string{"a", "b", "c"} {
			require.True(t, f.ObserveGone(types.NamespacedName{Namespace: "ns", Name: pod}, ""))
		}
		require.Zero(t, f.Counts())
		require.Empty(t, f.pods)
		require.Empty(t, f.byName)
		require.Zero(t, f.turns.Waiting())
		again := newPod("a", "2")
		require.False(t, f.Pod(again.UID).Left == placed("q1"))
		require.Zero(t, f.Pod(again.UID).EvictedAt)
		require.Equal(t, "q1", f.decide(again), "its refusals are forgotten, too")
	})
}

// Liqo's quota counts a ShadowPod, in any phase, until it is deleted.
func TestAPodThatHasEndedTakesRoomUntilItIsGone(t *testing.T) {
	f := withProviders("q")
	pod, next := newPod("pod", "1500m"), newPod("next", "1")
	require.Equal(t, "q1", f.decide(pod))
	f.ObserveAssigned(pod, placed("q1"))
	pod.Status.Phase = corev1.PodSucceeded
	require.True(t, f.ObserveEnded(pod, placed("q1")))
	require.False(t, f.ObserveEnded(pod, placed("q1")), "only once")
	require.Empty(t, f.decide(next))
	require.Zero(t, f.Counts().Assigned, "it does not run")
	known, _ := f.Provider("q")
	require.Equal(t, Assigned{Resources: resources.Amounts{corev1.ResourceCPU: 1500}}, known.Assigned["q1"])

	require.True(t, f.ObserveGone(name(pod), pod.UID))
	require.Equal(t, "q1", f.decide(next))
}

// The reason for which a pod waited does not concern it any more.
func TestNothingButItsRoomIsKeptOfAPodThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		first, pod := newPod("first", "1"), newPod("pod", "1")
		for _, uid := range []types.UID{first.UID, "another"} {
			require.Zero(t, f.MoveDelay(uid))
		}
		f.ObserveAssigned(pod, placed("q1"))
		require.Positive(t, f.MoveDelay(pod.UID))
		f.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: Refused, Until: time.Now().Add(time.Minute)})
		f.ObserveEvicted(pod, placed("q1"))
		pod.Status.Phase = corev1.PodFailed
		f.ObserveEnded(pod, placed("q1"))
		require.Zero(t, f.Counts())
		require.Zero(t, f.refusals())
	})
}

// Otherwise it would go back to the provider that it comes from.
func TestAMovingPodKeepsItsRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		pod := newPod("pod", "1")
		require.Equal(t, "q1", f.decide(pod))
		f.ObserveAssigned(pod, placed("q1"))
		f.ObserveEvicted(pod, placed("q1"))
		triedAt(pod, "q1", time.Minute)
		f.ObserveAssigned(pod, placed("q1"))
		require.False(t, f.Pod(pod.UID).Left == placed("q1"))
		f.ObserveLeft(pod, placed("q1"))
		require.True(t, f.Pod(pod.UID).Left == placed("q1"))
		f.ObserveAssigned(pod, placed("q1"))
		require.False(t, f.Pod(pod.UID).Left == placed("q1"), "it has come back")
		f.ObserveLeft(pod, placed("q1"))
		require.Empty(t, f.decide(pod))
		require.Equal(t, "q1", f.decide(newPod("other", "2")), "it takes no room there any more")
		f.expire(f.cfg.Clock.Now())
		require.NotZero(t, f.refusals())
		time.Sleep(time.Minute)
		f.expire(f.cfg.Clock.Now())
		require.Zero(t, f.refusals(), "it is tried again")
	})
}

// A pod that waits for capacity is not tried again and again because an earlier refusal has expired.
func TestARefusalExpiresOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		require.Equal(t, "q1", f.decide(newPod("other", "2")))
		pod := newPod("pod", "2")
		triedAt(pod, "q1", time.Minute)
		require.Empty(t, f.decide(pod))
		tries := 0
		for range 120 {
			time.Sleep(time.Second)
			f.expire(f.cfg.Clock.Now())
			names, _ := f.Wake(false)
			for range names {
				require.Empty(t, f.decide(pod))
				tries++
			}
		}
		require.LessOrEqual(t, tries, 1+120/30, "when it expires, and every 30 to 45 s")
	})
}

// refusals returns how many refusals are remembered.
func (f *Federation) refusals() int {
	count := len(f.withheld)
	for _, p := range f.pods {
		count += len(p.refusedUntil)
	}
	return count
}

// triedAt puts a VirtualNode in back-off on a pod for the given time.
func triedAt(pod *corev1.Pod, virtualNode string, long time.Duration) {
	tries := backoff.Tries{virtualNode: {Count: 1, Until: time.Now().Add(long)}}
	pod.Annotations = map[string]string{v1alpha1.TriesAnnotation: tries.Annotation()}
}

// One pod that starts nowhere would spoil the failure rate of all providers.
func TestAPodIsOneFailureOfAProvider(t *testing.T) {
	f, pod := withProviders("q"), newPod("pod", "1")
	for i := range 5 {
		f.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: PendingTooLong, Again: i > 0})
	}
	q, _ := f.Provider("q")
	require.Equal(t, int64(1), q.KPIs.Failed)
	require.Equal(t, 5, q.Refusals[PendingTooLong])
}

func TestARefusalIsRememberedAndWithholdsTheAmount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		pod, other := newPod("pod", "1500m"), newPod("other", "1")
		require.Equal(t, "q1", f.decide(pod))
		f.Forget(pod.UID)
		f.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: Refused, Until: time.Now().Add(time.Minute), LacksRoom: true})
		triedAt(pod, "q1", time.Minute)
		require.Empty(t, f.decide(pod))
		require.Empty(t, f.decide(other), "the provider lacks for one pod what it lacks for the other")
		require.Equal(t, "q1", f.decide(newPod("small", "500m")))

		time.Sleep(59 * time.Second)
		f.expire(f.cfg.Clock.Now())
		require.NotZero(t, f.refusals())
		time.Sleep(time.Second)
		f.expire(f.cfg.Clock.Now())
		require.Zero(t, f.refusals())
		require.Equal(t, "q1", f.decide(pod))
		q, known := f.Provider("q")
		require.True(t, known)
		require.Equal(t, int64(1), q.KPIs.Failed)
		require.Equal(t, map[RefusalReason]int{Refused: 1, PendingTooLong: 0}, q.Refusals)
	})
}

// The withheld amount is of the resource that the provider names, if the pod requests it.
func TestOnlyTheResourceThatIsLackingIsWithheld(t *testing.T) {
	for lacks, want := range map[corev1.ResourceName]resources.Amounts{
		"memory":         {corev1.ResourceMemory: 1 << 30},
		"cpu":            {corev1.ResourceCPU: 1500},
		"nvidia.com/gpu": {corev1.ResourceCPU: 1500, corev1.ResourceMemory: 1 << 30},
		"":               {corev1.ResourceCPU: 1500, corev1.ResourceMemory: 1 << 30},
	} {
		t.Run(string(lacks), func(t *testing.T) {
			f := withProviders("q")
			pod := newPod("pod", "1500m")
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Gi")
			f.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: Refused, Until: noon, LacksRoom: true, Lacks: lacks})
			withheld, _ := f.scheduler.Assigned(placed("q1"))
			require.Equal(t, want, withheld)
		})
	}
}

// Liqo forwards the requests that a pod had when its ShadowPod was made, and no resize.
func TestAResizedPodTakesWhatWasForwarded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		pod := newPod("pod", "1500m")
		require.Equal(t, "q1", f.decide(pod))
		taken := func() int64 {
			amounts, _ := f.scheduler.Assigned(placed("q1"))
			return amounts[corev1.ResourceCPU]
		}
		smaller, larger := newPod("pod", "500m"), newPod("pod", "1800m")
		f.ObserveAssigned(smaller, placed("q1"))
		require.EqualValues(t, 1500, taken())
		require.Empty(t, f.decide(newPod("other", "1")), "the quota of the provider counts 1500m")
		f.ObserveAssigned(larger, placed("q1"))
		require.EqualValues(t, 1800, taken(), "it may have been resized before it was forwarded")

		huge := newPod("pod", "1000")
		huge.Status.Phase = corev1.PodRunning
		f.ObserveAssigned(huge, placed("q1"))
		require.EqualValues(t, 1800, taken(), "it runs with what was forwarded")
		smaller.Status.Phase = corev1.PodSucceeded
		f.ObserveEnded(smaller, placed("q1"))
		amounts, pods := f.scheduler.Assigned(placed("q1"))
		require.EqualValues(t, 1800, amounts[corev1.ResourceCPU])
		require.Zero(t, pods)

		f.ObserveLeft(smaller, placed("q1"))
		smaller.Status.Phase = corev1.PodPending
		f.ObserveAssigned(smaller, placed("q1"))
		require.EqualValues(t, 500, taken(), "it is forwarded anew")
	})
}

// A refusal of a VirtualNode whose provider is gone counts for no provider.
func TestARefusalOfAnUnknownProviderIsNotCounted(t *testing.T) {
	f := withProviders("q")
	f.ObserveRefused(newPod("pod", "1"), Refusal{By: placed("gone"), Reason: Refused})
	q, _ := f.Provider("q")
	require.Zero(t, q.Refusals[Refused])
}

func TestAMoveLastsUntilTheNextAssignmentIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		pod := newPod("pod", "1")
		f.ObserveAssigned(pod, placed("q1"))
		f.ObserveEvicted(pod, placed("q1"))
		require.Equal(t, 1, f.Counts().Moving)
		time.Sleep(3 * time.Second)
		took, moved := f.ObserveAssignmentWritten(pod.UID)
		require.True(t, moved)
		require.Equal(t, 3*time.Second, took)
		require.Zero(t, f.Counts().Moving)
		_, moved = f.ObserveAssignmentWritten(pod.UID)
		require.False(t, moved, "it is counted once")

		f.ObserveEvicted(pod, placed("q1"))
		require.Equal(t, "q1", f.decide(pod))
		f.ObserveUncertain(pod.UID)
		require.Equal(t, 1, f.Counts().Moving)
		f.ObserveAssigned(pod, placed("q1"))
		require.Zero(t, f.Counts().Moving, "it had been written after all")

		f.ObserveEvicted(pod, placed("q1"))
		f.ObserveAssigned(pod, placed("q1"))
		require.Equal(t, 1, f.Counts().Moving, "the cache is late")
		require.True(t, f.ObserveGone(name(pod), pod.UID))
		require.Zero(t, f.Counts().Moving)
	})
}

func TestDelayedMovesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		require.Zero(t, f.MoveDelay("first"))
		require.Zero(t, f.MoveDelay("second"))
		require.NotZero(t, f.MoveDelay("third"))
		require.NotZero(t, f.MoveDelay("stays"))
		require.Equal(t, 2, f.Counts().Delayed)
		f.ObserveStays("stays", false)
		f.ObserveStays("first", false)
		require.NotZero(t, f.MoveDelay("third"), "the first is assigned anew, but does not run")
		f.ObserveStays("first", true)
		require.Zero(t, f.MoveDelay("third"))
		require.Zero(t, f.Counts().Delayed)
	})
}

func TestAStartIsCountedOnceForEachAssignment(t *testing.T) {
	f := withProviders("q")
	pod := newPod("pod", "1")
	f.ObserveAssigned(pod, placed("q1"))
	require.True(t, f.ObserveStarted(pod, 2*time.Second))
	require.False(t, f.ObserveStarted(pod, 2*time.Hour))
	q, _ := f.Provider("q")
	require.Equal(t, &v1alpha1.PodStart{P50Milliseconds: 2000, P90Milliseconds: 2000}, q.KPIs.PodStart)
	require.Equal(t, "q1", f.decide(pod))
	require.True(t, f.ObserveStarted(pod, time.Second), "at the next provider")
}

// Until the next virtual kubelet reports, the status is from where the pod was before.
func TestAMovedPodRunsWhenTheNextProviderReportsIt(t *testing.T) {
	running := func(since time.Time) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)},
		}}}
	}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f := withProviders("q")
	pod := newPod("pod", "1")
	pod.Status.ContainerStatuses = running(noon)
	require.True(t, f.ObserveRunning(pod))
	f.ObserveEvicted(pod, placed("q1"))
	require.Equal(t, "q1", f.decide(pod))
	require.False(t, f.ObserveRunning(pod), "the old status")
	pod.Status.ContainerStatuses = running(noon.Add(-time.Minute))
	require.True(t, f.ObserveRunning(pod), "the clock there is behind")
	pod.Status.ContainerStatuses = running(noon.Add(time.Minute))
	require.False(t, f.ObserveRunning(pod), "a container was restarted")

	never := newPod("never", "1")
	f.ObserveEvicted(never, placed("q1"))
	require.False(t, f.ObserveRunning(never), "no container runs yet")
}

// during is a clock that calls a function when it is read for the second time: Assume reads it before it takes the copy
// on which it evaluates expressions, and again while it does so.
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

// Expressions are evaluated without the lock: observations made meanwhile count.
func TestNoRoomIsReservedForAPodThatIsGoneMeanwhile(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(f *Federation, pod *corev1.Pod)
		want      string
		cpus      map[string]int64
	}{
		"nothing happens": {
			func(*Federation, *corev1.Pod) {}, "p1", map[string]int64{"p1": 1500, "q1": 0},
		},
		"it is deleted": {
			func(f *Federation, pod *corev1.Pod) { f.ObserveGone(name(pod), pod.UID) }, "", map[string]int64{"p1": 0, "q1": 0},
		},
		"it has ended where it was before": {func(f *Federation, pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodSucceeded
			f.ObserveEnded(pod, placed("q1"))
		}, "", map[string]int64{"p1": 0, "q1": 1500}},
	} {
		t.Run(name, func(t *testing.T) {
			f, pod := withProviders("p", "q"), newPod("pod", "1500m")
			filter, err := cel.NewFilter("provider.id == 'p'")
			require.NoError(t, err)
			of := (&placement.Criteria{}).Pod(pod, &corev1.Namespace{})
			of.Expression = filter
			meanwhile := &during{call: func() { tc.meanwhile(f, pod) }}
			f.cfg.Clock = meanwhile
			d := f.Assume(of, nil)
			require.GreaterOrEqual(t, meanwhile.reads, 2)
			require.Equal(t, tc.want, d.VirtualNode)
			assumed := f.Pod(pod.UID).Assumed
			require.Equal(t, tc.want != "", assumed)
			require.Zero(t, f.Counts().Unassigned)
			for virtualNode, want := range tc.cpus {
				amounts, _ := f.scheduler.Assigned(placed(virtualNode))
				require.Equal(t, want, amounts[corev1.ResourceCPU], virtualNode)
			}
		})
	}
}

// A filter of a tenant may take milliseconds for every decision. Nothing else waits for it.
func TestExpressionsAreEvaluatedWithoutTheLock(t *testing.T) {
	f := none()
	for i := range 50 {
		name := fmt.Sprintf("q%02d-", i)
		spec := ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{name + "1": false}}
		f.SetProvider(name, spec, &v1alpha1.ProviderClusterStatus{})
		f.Schedule(usable(name))
	}
	slow, err := cel.NewFilter("provider.id.split('').all(a, provider.id.split('').all(b, provider.id.split('').all(c, a + b + c != '')))")
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
				f.Assume(of, nil)
				f.Forget(of.UID)
				all = append(all, time.Since(began))
			}
		}
	}()
	var waited []time.Duration
	for range 200 {
		time.Sleep(time.Millisecond)
		began := time.Now()
		f.Provider("q01-")
		waited = append(waited, time.Since(began))
	}
	close(stop)
	decisions := <-decided
	slices.Sort(decisions)
	slices.Sort(waited)
	require.Less(t, waited[len(waited)/2], decisions[len(decisions)/2]/10, "the median of waiting, of decisions")
}
