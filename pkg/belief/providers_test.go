package belief

import (
	"fmt"
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
	b := withProviders("q")
	require.Equal(t, []string{"q"}, b.ObserveProbe("q", up(0)), "the first probe changes what is known")
	require.Empty(t, b.ObserveProbe("q", up(time.Second)))
	b.ObserveProbe("q", down(2*time.Second))
	require.Zero(t, b.VirtualNode(placed("q1")).UnreachableSince, "one failure may be an accident")
	require.Equal(t, []string{"q"}, b.ObserveProbe("q", down(3*time.Second)))
	require.Equal(t, noon.Add(2*time.Second), b.VirtualNode(placed("q1")).UnreachableSince, "since the first probe that failed")
	_, _, check := b.Uncleaned("q")
	require.False(t, check, "it cannot be asked")

	pod := newPod("pod", "1")
	require.Equal(t, "q", b.ObserveEvicted(pod, placed("q1")), "it may still run there")
	require.Empty(t, b.ObserveEvicted(pod, placed("q1")), "which is reported once")
	require.Empty(t, b.ObserveGivenUp(placed("q1")))
	b.ObserveProbe("q", up(4*time.Second))
	require.NotZero(t, b.VirtualNode(placed("q1")).UnreachableSince, "one answer may be an accident, too")
	b.ObserveProbe("q", down(5*time.Second))
	b.ObserveProbe("q", up(6*time.Second))
	require.Equal(t, noon.Add(2*time.Second), b.VirtualNode(placed("q1")).UnreachableSince, "it answers now and then")
	require.Equal(t, []string{"q"}, b.ObserveProbe("q", up(7*time.Second)))
	require.Zero(t, b.VirtualNode(placed("q1")).UnreachableSince)
	q, _ := b.Provider("q")
	require.True(t, q.Unclean)
	require.Equal(t, 5, q.ProbesAnswered)
	require.Equal(t, 3, q.ProbesFailed)
	_, moved, check := b.Uncleaned("q")
	require.True(t, check)
	b.ObserveGivenUp(placed("q1"))
	b.ObserveClean("q", moved)
	_, moved, check = b.Uncleaned("q")
	require.True(t, check, "a pod was moved away while the provider was checked")
	b.ObserveClean("q", moved)
	_, _, check = b.Uncleaned("q")
	require.False(t, check)
	require.Empty(t, b.ObserveProbe("unknown", up(0)))
}

// A lease that cannot be read stays as it was; a VirtualNode that is gone has none.
func TestAVirtualKubeletIsReadyByItsLease(t *testing.T) {
	b := withProviders("q")
	b.ObserveProbe("q", up(0))
	unread := up(time.Second)
	unread.Kubelets = map[string]bool{"gone": true}
	require.Empty(t, b.ObserveProbe("q", unread))
	q, _ := b.Provider("q")
	require.Equal(t, map[string]bool{"q1": true}, q.Kubelets)
	lost := up(2 * time.Second)
	lost.Kubelets = map[string]bool{"q1": false}
	require.NotEmpty(t, b.ObserveProbe("q", lost))
}

// A new leader counts an outage from its beginning, but moves nothing before its own probe has failed.
func TestAnOutageGoesOnOverARestart(t *testing.T) {
	for name, back := range map[string]bool{"still unreachable": false, "reachable again": true} {
		t.Run(name, func(t *testing.T) {
			b := none()
			b.SetProvider("q", ProviderSpec{VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{
				Conditions: []metav1.Condition{{
					Type: v1alpha1.ProviderReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoAnswer,
					Message: "i/o timeout", LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
				}, {Type: v1alpha1.ProviderClean, Status: metav1.ConditionTrue}},
			})
			q, _ := b.Provider("q")
			require.True(t, q.Unclean, "the leader before may have moved pods away and not have written it")
			require.Equal(t, "i/o timeout", q.Problem)
			require.Equal(t, VirtualNode{Known: true}, b.VirtualNode(placed("q1")))

			probe := down(0)
			if back {
				probe = up(0)
			}
			b.ObserveProbe("q", probe)
			if back {
				require.False(t, b.VirtualNode(placed("q1")).Confirmed, "one answer ends no outage")
				require.Zero(t, b.VirtualNode(placed("q1")).UnreachableSince, "nor does it speak for a move")
				b.ObserveProbe("q", up(time.Second))
			} else {
				require.False(t, b.VirtualNode(placed("q1")).Confirmed, "it may have been back for an hour")
				b.ObserveProbe("q", down(time.Second))
			}
			require.True(t, b.VirtualNode(placed("q1")).Confirmed)
			if back {
				require.Zero(t, b.VirtualNode(placed("q1")).UnreachableSince)
			} else {
				require.Equal(t, noon.Add(-time.Hour), b.VirtualNode(placed("q1")).UnreachableSince)
			}
		})
	}
}

// A provider may be reachable while no broker leads, and not any more soon after: its pods move after the second outage
// has lasted long enough, not after the sum.
func TestAnOutageThatWasOverDoesNotCount(t *testing.T) {
	b := none()
	b.SetProvider("q", ProviderSpec{VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ProviderReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoAnswer,
			LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
		}},
	})
	b.ObserveProbe("q", up(0))
	b.ObserveProbe("q", down(time.Second))
	b.ObserveProbe("q", down(2*time.Second))
	require.True(t, b.VirtualNode(placed("q1")).Confirmed)
	require.False(t, b.VirtualNode(placed("q1")).UnreachableSince.Before(noon))
}

// The leader before may have ended before its own second probe failed. Only an answer shows that the provider can be
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
			b := withProviders("q")
			confirmed := func() bool {
				q, _ := b.Provider("q")
				require.Equal(t, q.Confirmed, b.VirtualNode(placed("q1")).Confirmed)
				require.Equal(t, q.Confirmed, b.AllConfirmed([]string{"q"}))
				return q.Confirmed
			}
			require.False(t, confirmed())
			b.ObserveProbe("q", down(0))
			require.False(t, confirmed())
			require.False(t, b.Schedule(usable("q")), "it concerns no pod yet")
			require.NotEmpty(t, b.ObserveProbe("q", tc.then))
			require.True(t, confirmed())
			require.True(t, b.Schedule(usable("q")), "its pods are reconciled")
			require.Equal(t, tc.reachable, b.VirtualNode(placed("q1")).UnreachableSince.IsZero())
			b.ObserveProbe("q", up(2*time.Second))
			b.ObserveProbe("q", down(3*time.Second))
			require.True(t, confirmed(), "one failure after an answer may be an accident")
		})
	}
}

// While no provider can be reached, nothing is known of any of them. The first that answers proves nothing of the others,
// which are probed a moment later.
func TestASuspicionEndsForEachProviderByItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("p", "q")
		failBoth := func() {
			probeNow(b, false, "p")
			time.Sleep(time.Second)
			probeNow(b, false, "q")
		}
		began := time.Now()
		failBoth()
		time.Sleep(4 * time.Second)
		failBoth()
		time.Sleep(10 * time.Minute)
		failBoth()
		require.True(t, b.SuspectsItself())
		require.True(t, b.VirtualNode(placed("q1")).MovesSuspended)

		probeNow(b, true, "p")
		require.True(t, b.SuspectsItself())
		early := time.Now()
		time.Sleep(time.Second)
		probeNow(b, true, "p")
		answers := time.Now()
		require.False(t, b.SuspectsItself())
		require.True(t, b.VirtualNode(placed("q1")).MovesSuspended, "q was not probed since")
		time.Sleep(2 * time.Second)
		b.ObserveProbe("q", Probe{Began: early, Ended: time.Now()})
		require.True(t, b.VirtualNode(placed("q1")).MovesSuspended, "its probe began while no provider could be reached")
		probeNow(b, false, "q")
		vn := b.VirtualNode(placed("q1"))
		require.False(t, vn.MovesSuspended)
		require.Equal(t, began.Add(time.Second), vn.UnreachableSince)
		require.Equal(t, answers, vn.FailoverFrom, "the time before does not count")
		probeNow(b, true, "q")
		probeNow(b, true, "q")
		require.Equal(t, VirtualNode{Known: true, Confirmed: true}, b.VirtualNode(placed("q1")))
	})
}

// Pods of a provider that was lost first are marked. With the second provider the broker suspects itself: the pods of the
// first have to be reconciled, or they would stay out of their Services.
func TestASuspicionIsAChangeOfAllThatItConcerns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("p", "q", "r")
		probe := func(id string, answered bool) []string {
			time.Sleep(5 * time.Second)
			return probeNow(b, answered, id)
		}
		probeNow(b, true, "p", "q", "r")
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

func TestAVirtualNodeThatIsGoneIsNotKnown(t *testing.T) {
	b := none()
	set := func(virtualNodes map[string]bool, namespaces map[string]string) []string {
		return b.SetProvider("q", ProviderSpec{VirtualNodes: virtualNodes, RemoteNamespaces: namespaces}, &v1alpha1.ProviderClusterStatus{})
	}
	mapped := map[string]string{"ns": "ns-broker"}
	require.Empty(t, set(map[string]bool{"q1": false, "q2": true}, mapped))
	require.True(t, b.VirtualNode(placed("q2")).Draining, "it is being deleted")
	require.Equal(t, []string{"q1"}, set(map[string]bool{"q2": false}, mapped))
	require.Equal(t, VirtualNode{}, b.VirtualNode(placed("q1")))
	require.Equal(t, []scheduler.Place{placed("q2")}, b.OnePerProvider())

	remote, known := b.RemoteNamespace(placed("q2"), "elsewhere")
	require.True(t, known)
	require.Empty(t, remote)
	_, known = b.RemoteNamespace(placed("unknown"), "ns")
	require.False(t, known, "what is not known is not gone")
	set(map[string]bool{"q2": false}, nil)
	_, known = b.RemoteNamespace(placed("q2"), "ns")
	require.False(t, known)

	require.True(t, b.RemoveProvider("q"))
	require.False(t, b.RemoveProvider("q"))
	require.Empty(t, b.Providers())
}

func TestOnlyWhatConcernsPodsIsAChange(t *testing.T) {
	b := withProviders("q")
	fresh := usable("q")
	require.False(t, b.Schedule(fresh))
	fresh.KPIs = kpi.Values{kpi.Uptime1h: 0.5}
	require.False(t, b.Schedule(fresh), "KPIs change with every probe")
	fresh.Cordoned = true
	require.True(t, b.Schedule(fresh))
	b.ObserveProbe("q", up(0))
	require.True(t, b.Schedule(fresh), "it was probed")
	require.False(t, b.Schedule(scheduler.Provider{ID: "unknown"}))
}

func TestTheNodeHasRoomForWhatUsableProvidersGrantedAndAllThatIsAssigned(t *testing.T) {
	b := withProviders("p", "q")
	cordoned := usable("q")
	cordoned.Cordoned = true
	b.Schedule(cordoned)
	cpus := func(room resources.Amounts) int64 { return room[corev1.ResourceCPU] }
	room, usable, unlimited := b.Room()
	require.Equal(t, resources.Amounts{corev1.ResourceCPU: 2000}, room)
	require.Equal(t, 1, usable)
	require.True(t, unlimited, "the number of pods")

	// kube-scheduler subtracts all pods of the Node: those at providers that cannot be given others hide no free room.
	b.ObserveAssigned(newPod("one", "500m"), placed("q1"))
	room, _, _ = b.Room()
	require.EqualValues(t, 2500, cpus(room))
	require.EqualValues(t, 1, room[corev1.ResourcePods])
	b.ObserveAssigned(newPod("two", "1500m"), placed("p1"))
	room, _, _ = b.Room()
	require.EqualValues(t, 2500, cpus(room), "within a grant")
	b.ObserveAssigned(newPod("three", "1"), placed("p1"))
	room, _, _ = b.Room()
	require.EqualValues(t, 3000, cpus(room), "500m beyond it")
	b.RemoveProvider("q")
	b.ObserveGone(types.NamespacedName{Namespace: "ns", Name: "three"}, "three")
	room, _, _ = b.Room()
	require.EqualValues(t, 2500, cpus(room), "of a provider that is gone")

	require.False(t, b.AllConfirmed([]string{"p"}))
	b.ObserveProbe("p", up(0))
	require.True(t, b.AllConfirmed([]string{"p"}))
	require.False(t, b.AllConfirmed([]string{"p", "unknown"}))
}

// A tenant can have many pods wait that no provider fits: kube-scheduler subtracts them, and would bind no others.
func TestPodsThatWaitTakeNoRoomOfTheNode(t *testing.T) {
	b := withProviders("p")
	require.Equal(t, resources.Amounts{corev1.ResourceCPU: 2000}, roomOf(b))
	one, other := newPod("one", "3"), newPod("other", "500m")
	b.ObserveWaits(one)
	b.ObserveWaits(one)
	b.ObserveWaits(other)
	require.Equal(t, resources.Amounts{corev1.ResourceCPU: 5500, corev1.ResourcePods: 2}, roomOf(b))
	b.ObserveAssigned(other, placed("p1"))
	require.Equal(t, resources.Amounts{corev1.ResourceCPU: 5000, corev1.ResourcePods: 2}, roomOf(b), "the grant has no room of pods")
	b.ObserveLeft(other, placed("p1"))
	b.ObserveGone(types.NamespacedName{Namespace: "ns", Name: "one"}, "one")
	require.Equal(t, resources.Amounts{corev1.ResourceCPU: 2500, corev1.ResourcePods: 1}, roomOf(b), "it waits again")
	one.Status.Phase = corev1.PodFailed
	b.ObserveEnded(one, placed("p1"))
	b.ObserveGone(types.NamespacedName{Namespace: "ns", Name: "other"}, "other")
	require.Zero(t, roomOf(b)[corev1.ResourceCPU], "what has ended holds all of it")
}

func roomOf(b *Belief) resources.Amounts {
	room, _, _ := b.Room()
	return room
}

// kube-scheduler does not subtract pods that have ended, so what they hold must be no room in the first place.
func TestTheNodeHasNoRoomForWhatEndedPodsHold(t *testing.T) {
	b := withProviders("p", "q")
	for at, amount := range map[string]string{"p1": "500m", "q1": "3", "gone": "1"} {
		ended := newPod(at, amount)
		ended.Status.Phase = corev1.PodSucceeded
		b.ObserveEnded(ended, placed(at))
	}
	free := func() int64 {
		room, _, _ := b.Room()
		_, hasPods := room[corev1.ResourcePods]
		require.False(t, hasPods)
		return room[corev1.ResourceCPU]
	}
	require.EqualValues(t, 1500, free(), "of the grant of p1; q1 was granted 2 CPUs")
	cordoned := usable("p")
	cordoned.Cordoned = true
	b.Schedule(cordoned)
	require.Zero(t, free())
}

// For all assignments: what kube-scheduler takes for free, by the Node and its pods that have not ended, is what is
// granted by providers that can be given pods and not assigned.
func TestWhatKubeSchedulerTakesForFreeIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := withProviders("p", "q")
		free := map[string]int64{"p1": 2000, "q1": 2000}
		if rapid.Bool().Draw(t, "q is cordoned") {
			cordoned := usable("q")
			cordoned.Cordoned = true
			b.Schedule(cordoned)
			delete(free, "q1")
		}
		subtracted := int64(0)
		for i, at := range rapid.SliceOf(rapid.SampledFrom([]string{"p1", "q1", "gone"})).Draw(t, "assigned") {
			pod := newPod(fmt.Sprint(i), "700m")
			if rapid.Bool().Draw(t, "has ended") {
				pod.Status.Phase = corev1.PodSucceeded
				b.ObserveEnded(pod, placed(at))
			} else {
				b.ObserveAssigned(pod, placed(at))
				subtracted += 700
			}
			free[at] -= 700
		}
		want := max(0, free["p1"]) + max(0, free["q1"])
		room, _, _ := b.Room()
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
		meet    func(b *Belief)
		forgets bool
	}{
		"nothing is done": {lost: []string{"p", "q"}},
		"one of them is disabled": {
			lost: []string{"p", "q"}, meet: func(b *Belief) { b.SetProvider("p", spec(false, "p"), nil) }, forgets: true,
		},
		"one of them is deleted":    {lost: []string{"p", "q"}, meet: func(b *Belief) { b.RemoveProvider("p") }, forgets: true},
		"the limit has passed":      {lost: []string{"p", "q"}, limit: 30 * time.Minute, forgets: true},
		"the limit has not passed":  {lost: []string{"p", "q"}, limit: 2 * time.Hour},
		"no other provider is left": {lost: []string{"p", "q", "r"}, limit: 30 * time.Minute},
		"the third does not answer, either": {
			lost: []string{"p", "q"}, limit: 30 * time.Minute, meet: func(b *Belief) { probeNow(b, false, "r") },
		},
		"the third was not probed yet": {lost: []string{"p", "q"}, limit: 30 * time.Minute, meet: func(b *Belief) {
			b.RemoveProvider("r")
			b.SetProvider("r", spec(true, "r"), &v1alpha1.ProviderClusterStatus{})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := withProviders("p", "q", "r")
				b.cfg.SuspicionLimit = tc.limit
				probeNow(b, true, "r")
				lost := time.Now()
				probeNow(b, false, tc.lost...)
				time.Sleep(5 * time.Second)
				probeNow(b, false, tc.lost...)
				require.True(t, b.SuspectsItself())
				time.Sleep(time.Hour)
				if tc.meet != nil {
					tc.meet(b)
				}
				probeNow(b, false, "q")
				time.Sleep(5 * time.Second)
				probeNow(b, false, "q")
				require.Equal(t, !tc.forgets, b.SuspectsItself())
				vn := b.VirtualNode(placed("q1"))
				require.Equal(t, !tc.forgets, vn.MovesSuspended)
				if tc.forgets {
					require.Equal(t, lost, vn.UnreachableSince)
				}
			})
		})
	}
}

// probeNow has providers probed, which answer at once or not at all.
func probeNow(b *Belief, answered bool, ids ...string) (changed []string) {
	for _, id := range ids {
		changed = append(changed, b.ObserveProbe(id, Probe{Began: time.Now(), Ended: time.Now(), Answered: answered})...)
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
		"it answers":                             {probes: []Probe{up(0), up(s)}},
		"it is silent":                           {probes: []Probe{down(s), down(2 * s)}, unreachable: noon.Add(s)},
		"it rejects the broker once":             {probes: []Probe{up(0), alive(s)}},
		"it rejects the broker":                  {probes: []Probe{up(0), alive(s), alive(2 * s)}, unusable: true, reason: v1alpha1.ReasonRejects},
		"it has rejected every leader":           {probes: []Probe{alive(s), alive(2 * s)}, unusable: true, reason: v1alpha1.ReasonRejects},
		"it rejects, and is silent then":         {probes: []Probe{alive(s), alive(2 * s), down(3 * s), down(4 * s)}, unreachable: noon.Add(3 * s)},
		"it rejects, and is silent once":         {probes: []Probe{alive(s), down(2 * s)}, unusable: true},
		"it is silent, and rejects once":         {probes: []Probe{down(s), down(2 * s), alive(3 * s)}, unreachable: noon.Add(s)},
		"it is silent, and rejects then":         {probes: []Probe{down(s), down(2 * s), alive(3 * s), alive(4 * s)}, unusable: true, reason: v1alpha1.ReasonRejects},
		"it rejects, and answers then":           {probes: []Probe{alive(s), alive(2 * s), up(3 * s)}},
		"a virtual kubelet reaches it":           {probes: []Probe{reachedBy(5*s, 4*s), reachedBy(10*s, 9*s)}, unusable: true, reason: v1alpha1.ReasonKubeletReaches},
		"a virtual kubelet has reached it":       {probes: []Probe{reachedBy(5*s, -6*s), reachedBy(10*s, -6*s)}, unreachable: noon.Add(5 * s)},
		"a virtual kubelet reached it for long":  {probes: []Probe{reachedBy(5*s, 4*s), reachedBy(10*s, 9*s), reachedBy(30*s, 9*s)}, unreachable: noon.Add(9 * s)},
		"a lease is not read once":               {probes: []Probe{reachedBy(5*s, 4*s), reachedBy(10*s, 9*s), reachedBy(15*s, 14*s), down(20 * s)}, unusable: true, reason: v1alpha1.ReasonKubeletReaches},
		"a lease is read no more":                {probes: []Probe{reachedBy(5*s, 4*s), reachedBy(10*s, 9*s), down(15 * s), down(30 * s)}, unreachable: noon.Add(9 * s)},
		"a virtual kubelet reaches it again":     {probes: []Probe{down(5 * s), down(10 * s), reachedBy(15*s, 14*s)}, unusable: true, reason: v1alpha1.ReasonKubeletReaches},
		"a lease that says it without an end":    {probes: []Probe{reachedBy(5*s, s), reachedBy(10*s, s), reachedBy(15*s, s), reachedBy(20*s, s)}, unreachable: noon.Add(5 * s)},
		"the broker reaches it, no kubelet does": {probes: []Probe{up(0), up(s)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(Config{Clock: clock.RealClock{}, ProbeInterval: 5 * s})
			b.SetProvider("q", ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{})
			for _, probe := range tc.probes {
				b.ObserveProbe("q", probe)
			}
			vn := b.VirtualNode(placed("q1"))
			require.Equal(t, tc.unreachable, vn.UnreachableSince)
			require.Equal(t, tc.unusable, vn.Unusable)
			require.True(t, vn.Confirmed)
			q, _ := b.Provider("q")
			require.Equal(t, tc.unusable, q.Unusable)
			if tc.reason != "" {
				require.Equal(t, tc.reason, q.Reason)
			}
		})
	}
}

// A provider decides by its certificates whether it rejects the broker, and the broker's clock does: neither is an outage of it.
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
			b := New(Config{Clock: clock.RealClock{}, ProbeInterval: 5 * time.Second})
			b.SetProvider("q", ProviderSpec{VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{})
			for i := range 10 {
				b.ObserveProbe("q", up(time.Duration(i)*5*time.Second))
			}
			for i := range 90 {
				b.ObserveProbe("q", tc.probe(time.Duration(10+i)*5*time.Second))
			}
			q, _ := b.Provider("q")
			require.Contains(t, q.KPIs.Uptime.LastHour, tc.want)
		})
	}
}
