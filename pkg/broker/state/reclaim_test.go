package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// borrowing has pods of half a CPU at q1, the last the youngest, of users of consumer c1: "one-a", "one-b", "two-a".
func borrowing(t *testing.T, names ...string) *Federation {
	t.Helper()
	f := withProviders("q")
	f.cfg.ReclaimAfter = 10 * time.Minute
	for range probesUntilConfirmed {
		f.ObserveProbe("q", Probe{Began: time.Now(), Ended: time.Now(), Answered: true})
	}
	for i, name := range names {
		pod := ofUser(name[:3], name, "500m")
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(i) * time.Second))
		f.fits(t, pod)
		pod.Labels[v1alpha1.VirtualNodeLabel], pod.Labels[v1alpha1.ProviderLabel] = "q1", "q"
		f.ObserveAssigned(assignedBefore(pod), placed("q1"))
	}
	return f
}

func (f *Federation) reclaimed(milli users) {
	of := map[scheduler.Account]resources.Amounts{}
	for user, amount := range milli {
		of[scheduler.Account{Consumer: "c1", Creator: user}] = resources.Amounts{corev1.ResourceCPU: amount}
	}
	f.SetReclaimed(of)
}

func (f *Federation) leaving() (names []string) {
	all, _ := f.Wake(true)
	for _, name := range all {
		names = append(names, name.Name)
	}
	return names
}

func TestPodsOfTheUserBeyondItsGrantLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := borrowing(t, "two-a", "two-b", "one-a")
		f.grant(users{"one": 500, "two": 0})
		f.reclaimed(users{"two": 1000})
		require.Empty(t, f.leaving())
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"two-b", "two-a"}, f.leaving(), "the youngest of all is within its grant")
		require.Empty(t, f.leaving())
	})
}

// A small amount was in use beyond the grant for long. A larger one is reclaimed only after the whole time.
func TestALargerAmountBeginsAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := borrowing(t, "one-a", "one-b", "one-c")
		f.grant(users{"one": 0})
		f.reclaimed(users{"one": 1})
		time.Sleep(9 * time.Minute)
		f.reclaimed(users{"one": 1500})
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"one-c"}, f.leaving(), "for the small amount")
		time.Sleep(7 * time.Minute)
		require.Empty(t, f.leaving())
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"one-b", "one-a"}, f.leaving())
	})
}

// The aggregator decides now and then, and pods leave meanwhile.
func TestNoMoreLeaveThanOthersLack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := borrowing(t, "one-a", "one-b", "one-c")
		f.grant(users{"one": 0})
		f.reclaimed(users{"one": 500})
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"one-c"}, f.leaving())
		f.gone("one-c")
		f.ObserveNoSuccessor(name(newPod("one-c", "1")))
		require.Empty(t, f.leaving())
		time.Sleep(time.Minute)
		require.Empty(t, f.leaving())
	})
}

// Failover decides about the pods of a provider that does not answer.
func TestPodsThatCannotLeaveAreNotChosen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := borrowing(t, "one-a", "one-b")
		f.grant(users{"one": 0})
		f.reclaimed(users{"one": 500})
		time.Sleep(10 * time.Minute)
		f.providers["q"].unreachableSince = time.Now()
		require.Empty(t, f.leaving())
		f.providers["q"].unreachableSince = time.Time{}
		f.pods["one-b"].hasClaims = true
		require.Equal(t, []string{"one-a"}, f.leaving())
	})
}

func TestManyChangesOfAnAmountTakeNoMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := borrowing(t, "one-a")
		for i := range 10 * mostSamples {
			f.reclaimed(users{"one": int64(400 + i%2*100)})
			time.Sleep(time.Second)
		}
		for _, r := range f.reclaims {
			require.LessOrEqual(t, len(r.samples), mostSamples)
			require.Equal(t, resources.Amounts{corev1.ResourceCPU: 400}, r.due(time.Now(), 10*time.Minute))
		}
	})
}
