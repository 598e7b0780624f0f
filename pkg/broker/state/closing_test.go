package state

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// tryOf decides about a pod of an owner, and returns where it was assigned, or the verdict of the first provider.
func (f *Federation) tryOf(owner, name string, milli int64) string {
	d := f.Assume(&scheduler.Pod{
		UID: types.UID(name), Namespace: "ns", Name: name, Owner: owner, Consumer: owner,
		Requests: resources.Amounts{corev1.ResourceCPU: milli, corev1.ResourcePods: 1},
	}, nil)
	if d.VirtualNode == "" {
		return d.Verdicts[0].Reason()
	}
	return d.VirtualNode
}

// vain has a pod of an owner not start at q1.
func (f *Federation) vain(owner, name string) {
	pod := newPod(name, "100m")
	f.ObserveRefused(pod, Refusal{By: placed("q1"), Reason: PendingTooLong, Owner: owner})
	f.gone(name)
}

func TestAVirtualNodeThatStartsNothingTakesOnePodAMinute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		closed := verdict.StartsNothing.String()
		for i, owner := range []string{"c1", "c2"} {
			require.Equal(t, "q1", f.tryOf(owner, fmt.Sprint(i), 100))
			f.vain(owner, fmt.Sprint(i))
		}
		require.Equal(t, "q1", f.tryOf("c1", "third", 100), "two may have been unlucky")
		f.vain("c1", "third")
		require.Equal(t, closed, f.tryOf("c3", "other", 100))
		q, _ := f.Provider("q")
		require.Equal(t, []string{"c1", "c2"}, q.Closed["q1"].Owners)

		time.Sleep(trialInterval)
		require.Equal(t, "q1", f.tryOf("c3", "trial", 100))
		require.Equal(t, closed, f.tryOf("c3", "other", 100), "one is enough")
		f.vain("c3", "trial")
		require.Equal(t, closed, f.tryOf("c3", "other", 100))
		f.Schedule(usable("q"))
		require.Equal(t, closed, f.tryOf("c3", "other", 100), "a provider that is read again is as closed as before")

		time.Sleep(trialInterval)
		trial := newPod("again", "100m")
		require.Equal(t, "q1", f.tryOf("c1", "again", 100))
		trial.Status.Phase = corev1.PodPending
		f.ObserveAssigned(trial, placed("q1"))
		trial.Status.Phase = corev1.PodRunning
		f.ObserveAssigned(trial, placed("q1"))
		q, _ = f.Provider("q")
		require.Empty(t, q.Closed, "the first start opens it")
		require.Equal(t, []string{"other"}, f.woken())
		require.Equal(t, "q1", f.tryOf("c3", "other", 100))
	})
}

// Kubernetes' comparison of objects panics at a time.Time, and the reconciliation of a provider with a closed
// VirtualNode did, each time.
func TestAProviderWithAClosedVirtualNodeIsReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		closed := func(at time.Time) scheduler.Provider {
			q := usable("q")
			q.Slices[0].Closed = &scheduler.Closure{Owners: []string{"c1"}, TrialAt: at}
			return q
		}
		require.True(t, f.Schedule(closed(time.Now())))
		require.NotPanics(t, func() { require.False(t, f.Schedule(closed(time.Now()))) })
		require.True(t, f.Schedule(closed(time.Now().Add(time.Second))))
		require.True(t, f.Schedule(usable("q")))
	})
}

// When other prices begin to apply, nothing in the API changes.
func TestPodsThatWaitForAPriceAreTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		priced := usable("q")
		priced.Prices = price.Lists{{}, {From: time.Now().Add(time.Hour)}}
		require.True(t, f.Schedule(priced))
		time.Sleep(time.Hour - time.Second)
		require.False(t, f.Schedule(priced))
		time.Sleep(time.Second)
		require.True(t, f.Schedule(priced))
		require.False(t, f.Schedule(priced))
		require.Equal(t, priced.Prices, f.Prices()["q"], "also the earlier ones")
	})
}

// The compared value has nothing that its comparison panics at.
func TestWhatIsScheduledCanBeCompared(t *testing.T) {
	seen := map[reflect.Type]bool{reflect.TypeFor[time.Time](): true}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		switch of.Kind() {
		case reflect.Struct:
			for i := range of.NumField() {
				require.True(t, of.Field(i).IsExported(), "%s.%s", of, of.Field(i).Name)
				walk(of.Field(i).Type)
			}
		case reflect.Map:
			walk(of.Key())
			walk(of.Elem())
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(of.Elem())
		}
	}
	walk(reflect.TypeFor[scheduler.Provider]())
}

// The Node has no capacity for pods while all VirtualNodes are closed, so there is no pod to try; a new leader has not
// seen which pods started.
func TestAVirtualNodeAtWhichNoPodIsTriedOpens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		for i, owner := range []string{"c1", "c2", "c2"} {
			require.Equal(t, "q1", f.tryOf(owner, fmt.Sprint(i), 100))
			f.vain(owner, fmt.Sprint(i))
		}
		require.Equal(t, verdict.StartsNothing.String(), f.tryOf("c3", "other", 100))
		probe := func() map[string]Closing {
			f.ObserveProbe("q", Probe{Began: time.Now(), Ended: time.Now(), Answered: true})
			q, _ := f.Provider("q")
			return q.Closed
		}
		time.Sleep(untriedFor)
		require.NotEmpty(t, probe())
		require.Equal(t, "q1", f.tryOf("c1", "trial", 100))
		time.Sleep(untriedFor)
		require.NotEmpty(t, probe(), "one was tried")
		time.Sleep(trialInterval)
		cordoned := usable("q")
		cordoned.Cordoned = true
		f.Schedule(cordoned)
		require.NotEmpty(t, probe(), "none could be tried from now on")
		time.Sleep(untriedFor)
		require.NotEmpty(t, probe())
		f.Schedule(usable("q"))
		require.NotEmpty(t, probe(), "the time of the cordon does not count")
		time.Sleep(untriedFor)
		require.Empty(t, probe())
		require.Equal(t, "q1", f.tryOf("c3", "other", 100))
	})
}

func TestAnOwnerClosesAVirtualNodeForItselfOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		for i := range 20 {
			f.vain("c1", fmt.Sprint(i))
		}
		require.Equal(t, verdict.StartsNothing.String(), f.tryOf("c1", "own", 100))
		require.Equal(t, "q1", f.tryOf("c2", "other", 100))
		require.Equal(t, "q1", f.tryOf("c2", "another", 100), "that was no trial")
		q, _ := f.Provider("q")
		require.Equal(t, []string{"c1"}, q.Closed["q1"].Owners)

		// The pod's own fault, and pods that were tried there before, prove nothing about the provider.
		for i := range 20 {
			f.ObserveRefused(newPod(fmt.Sprint("own", i), "1"), Refusal{
				By: placed("q1"), Reason: PendingTooLong, Owner: "c2", OwnFault: true,
			})
			f.ObserveRefused(newPod("again", "1"), Refusal{By: placed("q1"), Reason: PendingTooLong, Owner: "c2", Again: true})
			f.ObserveRefused(newPod("refused", "1"), Refusal{By: placed("q1"), Reason: Refused, Owner: "c2"})
		}
		require.Equal(t, "q1", f.tryOf("c2", "third", 100))
	})
}

func TestANewLeaderGoesOnWithWhatIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("r")
		f.SetProvider("q", ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{
			VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: "q1", Closed: &v1alpha1.Closed{
				Since: metav1.NewTime(time.Now().Add(time.Hour)), Owners: []string{"c1", "c2"}, // By a clock that is ahead.
			}}},
		})
		f.Schedule(usable("q"))
		require.Equal(t, "r1", f.tryOf("c3", "large", 1900))
		require.Equal(t, verdict.StartsNothing.String(), f.tryOf("c3", "pod", 1000))
		time.Sleep(trialInterval)
		require.Equal(t, "q1", f.tryOf("c3", "pod", 1000))
	})
}

func TestAVirtualNodeWhosePodsAreNotMadeTakesOnePodAMinute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		closed := verdict.StartsNothing.String()
		f.ObserveNotMade(newPod("first", "100m"), placed("q1"), "c1")
		require.Equal(t, closed, f.tryOf("c1", "own", 100))
		require.Equal(t, "q1", f.tryOf("c2", "other", 100), "the reason may be what c1 asks for")
		since := time.Now()
		time.Sleep(time.Second)
		f.ObserveNotMade(newPod("first", "100m"), placed("q1"), "c1")
		f.ObserveNotMade(newPod("second", "100m"), placed("q1"), "c2")
		require.Equal(t, closed, f.tryOf("c3", "another", 100))
		q, _ := f.Provider("q")
		require.Equal(t, Closing{Since: since, Owners: []string{"c1", "c2"}}, q.Closed["q1"])
		f.ObserveNotMade(newPod("first", "100m"), placed("none"), "c1")
	})
}

// The clock of a new leader is ahead of the previous leader's clock, which has seen a provider become unreachable just
// now.
func TestAnOutageIsAsOldAsOneClockShows(t *testing.T) {
	for name, tc := range map[string]struct {
		lasted *time.Duration
		want   time.Duration
	}{
		"nothing but its begin is known":   {nil, 10 * time.Second},
		"the leader before saw 40 s of it": {ptr.To(40 * time.Second), 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := withProviders("r")
				began := metav1.NewTime(time.Now().Add(-5 * time.Minute))
				status := &v1alpha1.ProviderClusterStatus{Conditions: []metav1.Condition{{
					Type: v1alpha1.ProviderReachable, Status: metav1.ConditionFalse,
					Reason: v1alpha1.ReasonNoAnswer, LastTransitionTime: began,
				}}}
				if tc.lasted != nil {
					status.KPIs.Uptime.Until = ptr.To(metav1.NewTime(began.Add(*tc.lasted)))
				}
				f.SetProvider("q", ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}, status)
				for range 2 {
					f.ObserveProbe("q", Probe{Began: time.Now(), Ended: time.Now()})
					time.Sleep(5 * time.Second)
				}
				at := f.VirtualNode(placed("q1"))
				require.True(t, at.Confirmed)
				require.Equal(t, tc.want, time.Since(at.FailoverFrom))
			})
		})
	}
}
