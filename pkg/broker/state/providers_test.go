package state

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func up(after time.Duration) Probe {
	return Probe{
		Began: noon.Add(after), Ended: noon.Add(after), Answered: true, Took: 4 * time.Millisecond, Kubelets: map[string]bool{"q1": true},
	}
}

func down(after time.Duration) Probe {
	return Probe{Began: noon.Add(after), Ended: noon.Add(after), Problem: "timeout", Kubelets: map[string]bool{"q1": true}}
}

func TestAProviderIsUnreachableAfterTwoFailedProbesInARow(t *testing.T) {
	f := withProviders("q")
	require.Equal(t, []string{"q"}, f.ObserveProbe("q", up(0)), "the first probe changes what is known")
	require.Empty(t, f.ObserveProbe("q", up(time.Second)))
	f.ObserveProbe("q", down(2*time.Second))
	require.Zero(t, f.VirtualNode(placed("q1")).UnreachableSince, "one failure may be an accident")
	require.Equal(t, []string{"q"}, f.ObserveProbe("q", down(3*time.Second)))
	require.Equal(t, noon.Add(2*time.Second), f.VirtualNode(placed("q1")).UnreachableSince, "since the first probe that failed")
	q, _ := f.Provider("q")
	require.False(t, q.Answers, "it cannot be asked")

	pod := newPod("pod", "1")
	require.Equal(t, "q", f.ObserveEvicted(pod, placed("q1")), "it may still run there")
	require.Empty(t, f.ObserveEvicted(pod, placed("q1")), "which is reported once")
	require.Empty(t, f.ObserveGivenUp(placed("q1")))
	f.ObserveProbe("q", up(4*time.Second))
	require.NotZero(t, f.VirtualNode(placed("q1")).UnreachableSince, "one answer may be an accident, too")
	f.ObserveProbe("q", down(5*time.Second))
	f.ObserveProbe("q", up(6*time.Second))
	require.Equal(t, noon.Add(2*time.Second), f.VirtualNode(placed("q1")).UnreachableSince, "it answers now and then")
	require.Equal(t, []string{"q"}, f.ObserveProbe("q", up(7*time.Second)))
	require.Zero(t, f.VirtualNode(placed("q1")).UnreachableSince)
	q, _ = f.Provider("q")
	require.True(t, q.Unclean)
	require.True(t, q.Answers)
	require.Equal(t, 5, q.ProbesAnswered)
	require.Equal(t, 3, q.ProbesFailed)
	f.ObserveGivenUp(placed("q1"))
	f.ObserveClean("q", q.Moved)
	q, _ = f.Provider("q")
	require.True(t, q.Unclean, "a pod was moved away while the provider was checked")
	f.ObserveClean("q", q.Moved)
	q, _ = f.Provider("q")
	require.False(t, q.Unclean)
	require.Empty(t, f.ObserveProbe("unknown", up(0)))
}

// A lease that cannot be read stays as it was; a VirtualNode that is gone has none.
func TestAVirtualKubeletIsReadyByItsLease(t *testing.T) {
	f := withProviders("q")
	f.ObserveProbe("q", up(0))
	unread := up(time.Second)
	unread.Kubelets = map[string]bool{"gone": true}
	require.Empty(t, f.ObserveProbe("q", unread))
	q, _ := f.Provider("q")
	require.Equal(t, map[string]bool{"q1": true}, q.Kubelets)
	lost := up(2 * time.Second)
	lost.Kubelets = map[string]bool{"q1": false}
	require.NotEmpty(t, f.ObserveProbe("q", lost))
}

// A new leader counts an outage from its beginning, but moves nothing before its own probe has failed.
func TestAnOutageGoesOnOverARestart(t *testing.T) {
	for name, back := range map[string]bool{"still unreachable": false, "reachable again": true} {
		t.Run(name, func(t *testing.T) {
			f := none()
			f.SetProvider("q", ProviderSpec{VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{
				Conditions: []metav1.Condition{{
					Type: v1alpha1.ProviderReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoAnswer,
					Message: "i/o timeout", LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
				}, {Type: v1alpha1.ProviderClean, Status: metav1.ConditionTrue}},
			})
			q, _ := f.Provider("q")
			require.True(t, q.Unclean, "the leader before may have moved pods away and not have written it")
			require.Equal(t, "i/o timeout", q.Problem)
			require.Equal(t, VirtualNode{Known: true}, f.VirtualNode(placed("q1")))

			probe := down(0)
			if back {
				probe = up(0)
			}
			f.ObserveProbe("q", probe)
			if back {
				require.False(t, f.VirtualNode(placed("q1")).Confirmed, "one answer ends no outage")
				require.Zero(t, f.VirtualNode(placed("q1")).UnreachableSince, "nor does it speak for a move")
				f.ObserveProbe("q", up(time.Second))
			} else {
				require.False(t, f.VirtualNode(placed("q1")).Confirmed, "it may have been back for an hour")
				f.ObserveProbe("q", down(time.Second))
			}
			require.True(t, f.VirtualNode(placed("q1")).Confirmed)
			if back {
				require.Zero(t, f.VirtualNode(placed("q1")).UnreachableSince)
			} else {
				require.Equal(t, noon.Add(-time.Hour), f.VirtualNode(placed("q1")).UnreachableSince)
			}
		})
	}
}

// A provider may be reachable while no broker leads, and not any more soon after: its pods move after the second outage
// has lasted long enough, not after the sum.
func TestAnOutageThatWasOverDoesNotCount(t *testing.T) {
	f := none()
	f.SetProvider("q", ProviderSpec{VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ProviderReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoAnswer,
			LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
		}},
	})
	f.ObserveProbe("q", up(0))
	f.ObserveProbe("q", down(time.Second))
	f.ObserveProbe("q", down(2*time.Second))
	require.True(t, f.VirtualNode(placed("q1")).Confirmed)
	require.False(t, f.VirtualNode(placed("q1")).UnreachableSince.Before(noon))
}

// The previous leader may have ended before its own second probe failed. Only an answer shows that the provider can be
// reached.
func TestOneFailedProbeOfANewLeaderConfirmsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		then      Probe
		reachable bool
	}{
		"the next one fails, too": {down(time.Second), false},
		"the next one answers":    {up(time.Second), true},
	} {
		t.Run(name, func(t *testing.T) {
			f := withProviders("q")
			confirmed := func() bool {
				q, _ := f.Provider("q")
				require.Equal(t, q.Confirmed, f.VirtualNode(placed("q1")).Confirmed)
				return q.Confirmed
			}
			require.False(t, confirmed())
			f.ObserveProbe("q", down(0))
			require.False(t, confirmed())
			require.False(t, f.Schedule(usable("q")), "it concerns no pod yet")
			require.NotEmpty(t, f.ObserveProbe("q", tc.then))
			require.True(t, confirmed())
			require.True(t, f.Schedule(usable("q")), "its pods are reconciled")
			require.Equal(t, tc.reachable, f.VirtualNode(placed("q1")).UnreachableSince.IsZero())
			f.ObserveProbe("q", up(2*time.Second))
			f.ObserveProbe("q", down(3*time.Second))
			require.True(t, confirmed(), "one failure after an answer may be an accident")
		})
	}
}

// While no provider can be reached, nothing is known about them. The first that answers proves nothing about the
// others, which are probed a moment later.
func TestASuspicionEndsForEachProviderByItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("p", "q")
		failBoth := func() {
			probeNow(f, false, "p")
			time.Sleep(time.Second)
			probeNow(f, false, "q")
		}
		began := time.Now()
		failBoth()
		time.Sleep(4 * time.Second)
		failBoth()
		time.Sleep(10 * time.Minute)
		failBoth()
		require.True(t, f.Counts().SuspectsItself)
		require.True(t, f.VirtualNode(placed("q1")).MovesSuspended)

		probeNow(f, true, "p")
		require.True(t, f.Counts().SuspectsItself)
		early := time.Now()
		time.Sleep(time.Second)
		probeNow(f, true, "p")
		answers := time.Now()
		require.False(t, f.Counts().SuspectsItself)
		require.True(t, f.VirtualNode(placed("q1")).MovesSuspended, "q was not probed since")
		time.Sleep(2 * time.Second)
		f.ObserveProbe("q", Probe{Began: early, Ended: time.Now()})
		require.True(t, f.VirtualNode(placed("q1")).MovesSuspended, "its probe began while no provider could be reached")
		probeNow(f, false, "q")
		vn := f.VirtualNode(placed("q1"))
		require.False(t, vn.MovesSuspended)
		require.Equal(t, began.Add(time.Second), vn.UnreachableSince)
		require.Equal(t, answers, vn.FailoverFrom, "the time before does not count")
		probeNow(f, true, "q")
		probeNow(f, true, "q")
		require.Equal(t, VirtualNode{Known: true, Confirmed: true}, f.VirtualNode(placed("q1")))
	})
}

// Pods of a provider that was lost first are marked. With the second provider the broker suspects itself: the pods of
// the first have to be reconciled, or they would stay out of their Services.
func TestASuspicionIsAChangeOfAllThatItConcerns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("p", "q", "r")
		probe := func(id string, answered bool) []string {
			time.Sleep(5 * time.Second)
			return probeNow(f, answered, id)
		}
		probeNow(f, true, "p", "q", "r")
		probe("p", false)
		require.Equal(t, []string{"p"}, probe("p", false))
		probe("q", false)
		require.Equal(t, []string{"p", "q"}, probe("q", false), "the suspicion begins")
		require.Empty(t, probe("p", false))
		require.Equal(t, []string{"q"}, probe("q", true))
		require.Equal(t, []string{"q"}, probe("q", true), "it ends; p is not known to be unreachable since")
		require.Equal(t, []string{"p"}, probe("p", false), "it is now")
	})
}

func TestVirtualNodesAreSortedByProviderAndName(t *testing.T) {
	f, want := none(), []scheduler.Place{}
	for i := range 20 {
		id := fmt.Sprintf("p%02d", i)
		virtualNodes := map[string]bool{"a": false, "b": false, "c": false}
		f.SetProvider(id, ProviderSpec{VirtualNodes: virtualNodes}, &v1alpha1.ProviderClusterStatus{})
		for _, name := range slices.Sorted(maps.Keys(virtualNodes)) {
			want = append(want, scheduler.Place{Provider: id, VirtualNode: name})
		}
	}
	require.Equal(t, want, f.VirtualNodes())
}

func TestAVirtualNodeThatIsGoneIsNotKnown(t *testing.T) {
	f := none()
	set := func(virtualNodes map[string]bool, namespaces map[string]string) []string {
		return f.SetProvider("q", ProviderSpec{VirtualNodes: virtualNodes, RemoteNamespaces: namespaces}, &v1alpha1.ProviderClusterStatus{})
	}
	mapped := map[string]string{"ns": "ns-broker"}
	require.Empty(t, set(map[string]bool{"q1": false, "q2": true}, mapped))
	require.True(t, f.VirtualNode(placed("q2")).Draining, "it is being deleted")
	require.Equal(t, []string{"q1"}, set(map[string]bool{"q2": false}, mapped))
	require.Equal(t, VirtualNode{}, f.VirtualNode(placed("q1")))
	require.Equal(t, []scheduler.Place{placed("q2")}, f.VirtualNodes())
	unknown, known := f.Provider("unknown")
	require.False(t, known || unknown.Confirmed)

	remote, known := f.RemoteNamespace(placed("q2"), "elsewhere")
	require.True(t, known)
	require.Empty(t, remote)
	_, known = f.RemoteNamespace(placed("unknown"), "ns")
	require.False(t, known, "what is not known is not gone")
	set(map[string]bool{"q2": false}, nil)
	_, known = f.RemoteNamespace(placed("q2"), "ns")
	require.False(t, known)

	require.True(t, f.RemoveProvider("q"))
	require.False(t, f.RemoveProvider("q"))
	require.Empty(t, f.Providers())
}

func TestOnlyWhatConcernsPodsIsAChange(t *testing.T) {
	f := withProviders("q")
	fresh := usable("q")
	require.False(t, f.Schedule(fresh))
	fresh.KPIs = kpi.Values{kpi.Uptime1h: 0.5}
	require.False(t, f.Schedule(fresh), "KPIs change with every probe")
	fresh.Cordoned = true
	require.True(t, f.Schedule(fresh))
	f.ObserveProbe("q", up(0))
	require.True(t, f.Schedule(fresh), "it was probed")
	require.False(t, f.Schedule(scheduler.Provider{ID: "unknown"}))
}

func TestTheNodeHasRoomForWhatUsableProvidersGrantedAndAllThatIsAssigned(t *testing.T) {
	f := withProviders("p", "q")
	cordoned := usable("q")
	cordoned.Cordoned = true
	f.Schedule(cordoned)
	cpus := func(room resources.Amounts) int64 { return room[corev1.ResourceCPU] }
	room, usable, unlimited := f.Room()
	require.Equal(t, resources.Amounts{corev1.ResourceCPU: 2000}, room)
	require.Equal(t, 1, usable)
	require.True(t, unlimited, "the number of pods")

	// kube-scheduler subtracts all pods of the Node: pods at providers that cannot be assigned others hide no free
	// capacity.
	f.ObserveAssigned(newPod("one", "500m"), placed("q1"))
	room, _, _ = f.Room()
	require.EqualValues(t, 2500, cpus(room))
	require.EqualValues(t, 1, room[corev1.ResourcePods])
	f.ObserveAssigned(newPod("two", "1500m"), placed("p1"))
	room, _, _ = f.Room()
	require.EqualValues(t, 2500, cpus(room), "within a grant")
	f.ObserveAssigned(newPod("three", "1"), placed("p1"))
	room, _, _ = f.Room()
	require.EqualValues(t, 3000, cpus(room), "500m beyond it")
	f.RemoveProvider("q")
	f.ObserveGone(types.NamespacedName{Namespace: "ns", Name: "three"}, "three")
	room, _, _ = f.Room()
	require.EqualValues(t, 2500, cpus(room), "of a provider that is gone")
}

// A tenant can have many pods wait that no provider fits: kube-scheduler subtracts them, and would bind no others.
func TestPodsThatWaitTakeNoRoomOfTheNode(t *testing.T) {
	f := withProviders("p")
	require.Equal(t, resources.Amounts{corev1.ResourceCPU: 2000}, roomOf(f))
	one, other := newPod("one", "3"), newPod("other", "500m")
	f.ObserveWaits(one)
	f.ObserveWaits(one)
	f.ObserveWaits(other)
	require.Equal(t, resources.Amounts{corev1.ResourceCPU: 5500, corev1.ResourcePods: 2}, roomOf(f))
	f.ObserveAssigned(other, placed("p1"))
	require.Equal(t, resources.Amounts{corev1.ResourceCPU: 5000, corev1.ResourcePods: 2}, roomOf(f), "the grant has no room of pods")
	f.ObserveLeft(other, placed("p1"))
	f.ObserveGone(types.NamespacedName{Namespace: "ns", Name: "one"}, "one")
	require.Equal(t, resources.Amounts{corev1.ResourceCPU: 2500, corev1.ResourcePods: 1}, roomOf(f), "it waits again")
	one.Status.Phase = corev1.PodFailed
	f.ObserveEnded(one, placed("p1"))
	f.ObserveGone(types.NamespacedName{Namespace: "ns", Name: "other"}, "other")
	require.Zero(t, roomOf(f)[corev1.ResourceCPU], "what has ended holds all of it")
}

func roomOf(f *Federation) resources.Amounts {
	room, _, _ := f.Room()
	return room
}

// kube-scheduler does not subtract pods that have ended, so the Node's capacity must not include their requests.
func TestTheNodeHasNoRoomForWhatEndedPodsHold(t *testing.T) {
	f := withProviders("p", "q")
	for at, amount := range map[string]string{"p1": "500m", "q1": "3", "gone": "1"} {
		ended := newPod(at, amount)
		ended.Status.Phase = corev1.PodSucceeded
		f.ObserveEnded(ended, placed(at))
	}
	free := func() int64 {
		room, _, _ := f.Room()
		_, hasPods := room[corev1.ResourcePods]
		require.False(t, hasPods)
		return room[corev1.ResourceCPU]
	}
	require.EqualValues(t, 1500, free(), "of the grant of p1; q1 was granted 2 CPUs")
	cordoned := usable("p")
	cordoned.Cordoned = true
	f.Schedule(cordoned)
	require.Zero(t, free())
}

// For all assignments: the capacity that kube-scheduler considers free, by the Node and its pods that have not ended,
// is granted by providers that can be assigned pods, and not assigned.
func TestWhatKubeSchedulerTakesForFreeIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := withProviders("p", "q")
		free := map[string]int64{"p1": 2000, "q1": 2000}
		if rapid.Bool().Draw(t, "q is cordoned") {
			cordoned := usable("q")
			cordoned.Cordoned = true
			f.Schedule(cordoned)
			delete(free, "q1")
		}
		subtracted := int64(0)
		for i, at := range rapid.SliceOf(rapid.SampledFrom([]string{"p1", "q1", "gone"})).Draw(t, "assigned") {
			pod := newPod(fmt.Sprint(i), "700m")
			if rapid.Bool().Draw(t, "has ended") {
				pod.Status.Phase = corev1.PodSucceeded
				f.ObserveEnded(pod, placed(at))
			} else {
				f.ObserveAssigned(pod, placed(at))
				subtracted += 700
			}
			free[at] -= 700
		}
		want := max(0, free["p1"]) + max(0, free["q1"])
		room, _, _ := f.Room()
		require.Equal(t, want, room[corev1.ResourceCPU]-subtracted)
	})
}

func TestSuspicious(t *testing.T) {
	ago := func(minutes ...int) []time.Time {
		var out []time.Time
		for _, m := range minutes {
			out = append(out, noon.Add(-time.Duration(m)*time.Minute))
		}
		return out
	}
	for name, tc := range map[string]struct {
		outages []time.Time
		total   int
		want    bool
	}{
		"no provider is unreachable":                             {nil, 3, false},
		"one of two is an outage":                                {ago(1), 2, false},
		"the only one is an outage":                              {ago(1), 1, false},
		"two of three at once is the broker":                     {ago(1, 1), 3, true},
		"two of three, one after the other, are two outages":     {ago(1, 30), 3, false},
		"two of five are two outages":                            {ago(1, 1), 5, false},
		"an old outage does not count among those that answered": {ago(60, 1, 1), 4, true},
		"all at once is the broker":                              {ago(1, 1, 1, 1), 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, suspicious(tc.outages, tc.total, time.Minute))
		})
	}
}

// As long as the providers that became unreachable together stay so, the broker goes on suspecting itself, however much
// time passes; and a single outage is never suspicious.
func TestASuspicionDoesNotExpire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(2, 20).Draw(t, "total")
		unreachable := rapid.IntRange(1, total).Draw(t, "unreachable")
		var outages []time.Time
		for range unreachable {
			outages = append(outages, noon.Add(-time.Duration(rapid.IntRange(0, 3600).Draw(t, "ago"))*time.Second))
		}
		is := suspicious(outages, total, time.Minute)
		var later []time.Time
		for _, o := range outages {
			later = append(later, o.Add(-time.Hour))
		}
		require.Equal(t, is, suspicious(later, total, time.Minute))
		require.False(t, suspicious(outages[:1], total, time.Minute))
		if is && unreachable < total {
			require.True(t, suspicious(append(outages, noon), total, time.Minute), "one more becomes unreachable")
		}
	})
}

// Two of three providers that became unreachable together do not come back.
func TestASuspicionEndsWhenProvidersAreGoneForGood(t *testing.T) {
	spec := func(enabled bool, name string) ProviderSpec {
		return ProviderSpec{Enabled: enabled, VirtualNodes: map[string]bool{name + "1": false}}
	}
	for name, tc := range map[string]struct {
		limit   time.Duration
		lost    []string
		meet    func(f *Federation)
		forgets bool
	}{
		"nothing is done": {lost: []string{"p", "q"}},
		"one of them is disabled": {
			lost: []string{"p", "q"}, meet: func(f *Federation) { f.SetProvider("p", spec(false, "p"), nil) }, forgets: true,
		},
		"one of them is deleted":    {lost: []string{"p", "q"}, meet: func(f *Federation) { f.RemoveProvider("p") }, forgets: true},
		"the limit has passed":      {lost: []string{"p", "q"}, limit: 30 * time.Minute, forgets: true},
		"the limit has not passed":  {lost: []string{"p", "q"}, limit: 2 * time.Hour},
		"no other provider is left": {lost: []string{"p", "q", "r"}, limit: 30 * time.Minute},
		"the third does not answer, either": {
			lost: []string{"p", "q"}, limit: 30 * time.Minute, meet: func(f *Federation) { probeNow(f, false, "r") },
		},
		"the third was not probed yet": {lost: []string{"p", "q"}, limit: 30 * time.Minute, meet: func(f *Federation) {
			f.RemoveProvider("r")
			f.SetProvider("r", spec(true, "r"), &v1alpha1.ProviderClusterStatus{})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := withProviders("p", "q", "r")
				f.cfg.SuspicionLimit = tc.limit
				probeNow(f, true, "r")
				lost := time.Now()
				probeNow(f, false, tc.lost...)
				time.Sleep(5 * time.Second)
				probeNow(f, false, tc.lost...)
				require.True(t, f.Counts().SuspectsItself)
				time.Sleep(time.Hour)
				if tc.meet != nil {
					tc.meet(f)
				}
				probeNow(f, false, "q")
				time.Sleep(5 * time.Second)
				probeNow(f, false, "q")
				require.Equal(t, !tc.forgets, f.Counts().SuspectsItself)
				vn := f.VirtualNode(placed("q1"))
				require.Equal(t, !tc.forgets, vn.MovesSuspended)
				if tc.forgets {
					require.Equal(t, lost, vn.UnreachableSince)
				}
			})
		})
	}
}

// probeNow has providers probed, which answer at once or not at all.
func probeNow(f *Federation, answered bool, ids ...string) (changed []string) {
	for _, id := range ids {
		changed = append(changed, f.ObserveProbe(id, Probe{Began: time.Now(), Ended: time.Now(), Answered: answered})...)
	}
	slices.Sort(changed)
	return changed
}

// alive is a probe that shows that the provider is not silent, though it is not ready for the broker.
func alive(after time.Duration) Probe {
	probe := down(after)
	probe.Alive, probe.Reason, probe.Problem = true, v1alpha1.ReasonRejects, "status 401"
	return probe
}

// reachedBy is a probe without an answer, while a virtual kubelet had one.
func reachedBy(after, reached time.Duration) Probe {
	probe := down(after)
	probe.Reached = noon.Add(reached)
	return probe
}

func TestOnlyASilentProviderIsUnreachable(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		probes []Probe
		// unreachable is since when, of which zero is not at all.
		unreachable time.Time
		unusable    bool
		reason      string
	}{
		"it answers":                 {probes: []Probe{up(0), up(s)}},
		"it is silent":               {probes: []Probe{down(s), down(2 * s)}, unreachable: noon.Add(s)},
		"it rejects the broker once": {probes: []Probe{up(0), alive(s)}},
		"it rejects the broker": {
			probes: []Probe{up(0), alive(s), alive(2 * s)}, unusable: true, reason: v1alpha1.ReasonRejects,
		},
		"it has rejected every leader": {probes: []Probe{alive(s), alive(2 * s)}, unusable: true, reason: v1alpha1.ReasonRejects},
		"it rejects, and is silent then": {
			probes: []Probe{alive(s), alive(2 * s), down(3 * s), down(4 * s)}, unreachable: noon.Add(3 * s),
		},
		"it rejects, and is silent once": {probes: []Probe{alive(s), down(2 * s)}, unusable: true},
		"it is silent, and rejects once": {probes: []Probe{down(s), down(2 * s), alive(3 * s)}, unreachable: noon.Add(s)},
		"it is silent, and rejects then": {
			probes: []Probe{down(s), down(2 * s), alive(3 * s), alive(4 * s)}, unusable: true, reason: v1alpha1.ReasonRejects,
		},
		"it rejects, and answers then": {probes: []Probe{alive(s), alive(2 * s), up(3 * s)}},
		"a virtual kubelet reaches it": {
			probes: []Probe{reachedBy(5*s, 4*s), reachedBy(10*s, 9*s)}, unusable: true, reason: v1alpha1.ReasonKubeletReaches,
		},
		"a virtual kubelet has reached it": {
			probes: []Probe{reachedBy(5*s, -6*s), reachedBy(10*s, -6*s)}, unreachable: noon.Add(5 * s),
		},
		"a virtual kubelet reached it for long": {
			probes: []Probe{reachedBy(5*s, 4*s), reachedBy(10*s, 9*s), reachedBy(30*s, 9*s)}, unreachable: noon.Add(9 * s),
		},
		"a lease is not read once": {
			probes:   []Probe{reachedBy(5*s, 4*s), reachedBy(10*s, 9*s), reachedBy(15*s, 14*s), down(20 * s)},
			unusable: true, reason: v1alpha1.ReasonKubeletReaches,
		},
		"a lease is read no more": {
			probes: []Probe{reachedBy(5*s, 4*s), reachedBy(10*s, 9*s), down(15 * s), down(30 * s)}, unreachable: noon.Add(9 * s),
		},
		"a virtual kubelet reaches it again": {
			probes: []Probe{down(5 * s), down(10 * s), reachedBy(15*s, 14*s)}, unusable: true, reason: v1alpha1.ReasonKubeletReaches,
		},
		"a lease that says it without an end": {
			probes: []Probe{reachedBy(5*s, s), reachedBy(10*s, s), reachedBy(15*s, s), reachedBy(20*s, s)}, unreachable: noon.Add(5 * s),
		},
		"the broker reaches it, no kubelet does": {probes: []Probe{up(0), up(s)}},
	} {
		t.Run(name, func(t *testing.T) {
			f := New(Config{Clock: clock.RealClock{}, ProbeInterval: 5 * s})
			f.SetProvider("q", ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{})
			for _, probe := range tc.probes {
				f.ObserveProbe("q", probe)
			}
			vn := f.VirtualNode(placed("q1"))
			require.Equal(t, tc.unreachable, vn.UnreachableSince)
			require.Equal(t, tc.unusable, vn.Unusable)
			require.True(t, vn.Confirmed)
			q, _ := f.Provider("q")
			require.Equal(t, tc.unusable, q.Unusable)
			if tc.reason != "" {
				require.Equal(t, tc.reason, q.Reason)
			}
		})
	}
}

// A provider decides by its certificates whether it rejects the broker, and the broker's clock does: neither is an
// outage of it.
func TestOnlySilenceLowersTheUptime(t *testing.T) {
	for name, tc := range map[string]struct {
		probe func(time.Duration) Probe
		want  string
	}{
		"it rejects":                   {alive, "1"},
		"a virtual kubelet reaches it": {func(after time.Duration) Probe { return reachedBy(after, after-time.Second) }, "1"},
		"it is silent":                 {down, "0.09"},
	} {
		t.Run(name, func(t *testing.T) {
			f := New(Config{Clock: clock.RealClock{}, ProbeInterval: 5 * time.Second})
			f.SetProvider("q", ProviderSpec{VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{})
			for i := range 10 {
				f.ObserveProbe("q", up(time.Duration(i)*5*time.Second))
			}
			for i := range 90 {
				f.ObserveProbe("q", tc.probe(time.Duration(10+i)*5*time.Second))
			}
			q, _ := f.Provider("q")
			require.Contains(t, q.KPIs.Uptime.LastHour, tc.want)
		})
	}
}
