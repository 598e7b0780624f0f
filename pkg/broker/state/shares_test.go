package state

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// of decides about a new pod of a consumer, whose name begins with the consumer's.
func (f *Federation) of(consumer, name string, milli int64) scheduler.Decision {
	return f.Assume(&scheduler.Pod{
		UID: types.UID(name), Namespace: "ns", Name: name, Consumer: consumer, Owner: consumer,
		Account: scheduler.Account{Consumer: consumer}, First: true,
		Requests: resources.Amounts{corev1.ResourceCPU: milli, corev1.ResourcePods: 1},
	}, nil)
}

// tryWoken decides about the pods to try now, each of a thousandth of a CPU, until no more follow.
func (f *Federation) tryWoken() {
	for {
		names, more := f.Wake(true)
		for _, name := range names {
			consumer, _, _ := strings.Cut(name.Name, "-")
			f.of(consumer, name.Name, 1)
		}
		if !more {
			return
		}
	}
}

// assignedTo counts the assigned pods by consumer.
func (f *Federation) assignedTo(t *testing.T) map[string]int {
	t.Helper()
	by := map[string]int{}
	for uid, p := range f.pods {
		if at := f.scheduler.PlaceOf(scheduler.HolderOf(uid)); at != (scheduler.Place{}) {
			consumer, _, _ := strings.Cut(p.name.Name, "-")
			by[consumer]++
		}
	}
	return by
}

// ended ends an assigned pod, chosen at random.
func (f *Federation) ended(random *rand.Rand) {
	var assigned []string
	for _, uid := range sets.List(sets.KeySet(f.pods)) {
		if f.scheduler.PlaceOf(scheduler.HolderOf(uid)) != (scheduler.Place{}) {
			assigned = append(assigned, f.pods[uid].name.Name)
		}
	}
	f.gone(assigned[random.IntN(len(assigned))])
}

// Three consumers always have pods that wait. Pods end at random, and new ones arrive, of the first consumer by far the
// most.
func TestWaitingPodsShareByWeight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const capacity = 180
		f := withProviders("q")
		f.Schedule(scheduler.Provider{
			ID: "q", Enabled: true, Ready: true, Namespaces: sets.New("ns"),
			Slices: []scheduler.Slice{{VirtualNode: "q1", Granted: resources.Amounts{corev1.ResourceCPU: capacity}}},
		})
		f.SetTerms("c2", fairshare.Terms{Weight: 2})
		f.SetTerms("c3", fairshare.Terms{Weight: 3})
		random, made := rand.New(rand.NewPCG(1, 1)), 0
		arrive := func(consumer string) {
			made++
			f.of(consumer, fmt.Sprint(consumer, "-", made), 1)
		}
		for range capacity {
			arrive("c1") // It was alone.
		}
		for range 400 {
			arrive("c1")
			arrive("c2")
			arrive("c3")
		}
		for range 450 {
			f.ended(random)
			for range random.IntN(3) {
				arrive("c1")
			}
			f.tryWoken()
			time.Sleep(200 * time.Millisecond)
		}
		for consumer, want := range map[string]float64{"c1": 30, "c2": 60, "c3": 90} {
			require.InEpsilon(t, want, f.assignedTo(t)[consumer], 0.02, "%s: %v", consumer, f.assignedTo(t))
		}
	})
}

// 1,500 pods of one consumer wait. The capacity that becomes free is for the pod of another one.
func TestManyWaitingPodsDoNotDelayThoseOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		for i := range 2000 + 1500 {
			f.of("c1", fmt.Sprint("c1-", i), 1)
		}
		time.Sleep(time.Second)
		require.Empty(t, f.of("c2", "c2-a", 1).VirtualNode)
		f.gone("c1-0")
		require.Equal(t, "c2-a", f.woken()[0])
	})
}

func TestANewPodDoesNotOvertakeAConsumerWithASmallerShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q", "r")
		r := usable("r")
		r.Namespaces = sets.New("elsewhere")
		f.Schedule(r)
		require.Equal(t, "q1", f.of("c1", "c1-a", 1500).VirtualNode)
		require.Equal(t, "q1", f.of("c2", "c2-a", 500).VirtualNode)
		require.Empty(t, f.of("c2", "c2-b", 1000).VirtualNode)
		require.Empty(t, f.woken())

		f.gone("c2-a") // 500 are free, and c2-b waits for 1000.
		require.Equal(t, "q1", f.of("c1", "c1-b", 300).VirtualNode)
		require.Empty(t, f.of("c1", "c1-d", 300).VirtualNode)

		f.gone("c1-a") // It fits now, and its consumer has nothing.
		d := f.of("c1", "c1-c", 300)
		require.Empty(t, d.VirtualNode)
		require.Equal(t, "has a share of 0.075 (cpu), and pods of a consumer with 0.000 wait for the same provider", d.Held)
		time.Sleep(time.Second)
		require.Equal(t, time.Second, f.of("c1", "c1-c", 300).HeldFor, "an event of the pod changes nothing")
		require.NotEmpty(t, f.of("c1", "c1-d", 300).Held, "nor does another try of one that waited before")
		require.Equal(t, []string{"c2-b"}, f.woken(), "it goes first")
		require.Equal(t, "q1", f.of("c2", "c2-b", 1000).VirtualNode)
		require.ElementsMatch(t, []string{"c1-c", "c1-d"}, f.woken())
		require.Equal(t, "q1", f.of("c1", "c1-c", 300).VirtualNode)
	})
}

// Pods of a consumer that is always woken, and never assigned, hold back others for some time only.
func TestAPodIsHeldForSomeTimeOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		require.Equal(t, "q1", f.of("c1", "c1-a", 1500).VirtualNode)
		require.Equal(t, "q1", f.of("c2", "c2-a", 500).VirtualNode)
		require.Empty(t, f.of("c3", "c3-a", 500).VirtualNode)
		f.Wake(false)
		f.gone("c2-a")
		require.NotEmpty(t, f.of("c1", "c1-b", 500).Held)
		for range 10 {
			f.openAll(f.providers["q"])
			require.Equal(t, []string{"c3-a"}, f.woken())
			time.Sleep(450 * time.Millisecond)
		}
		time.Sleep(time.Second)
		f.openAll(f.providers["q"])
		require.Equal(t, []string{"c3-a", "c1-b"}, f.woken())
	})
}

// A pod that moves had its capacity before, and a pod that fits where no other consumer waits takes nothing from them.
func TestOnlyNewPodsAreHeldWhereOthersWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q", "r")
		require.Equal(t, "q1", f.of("c1", "c1-a", 1500).VirtualNode)
		pod := &scheduler.Pod{
			UID: "c2-a", Namespace: "ns", Name: "c2-a", Consumer: "c2", Owner: "c2",
			Account: scheduler.Account{Consumer: "c2"}, First: true,
			Selections: []scheduler.Selection{{Only: true, IDs: sets.New("q")}}, Requests: resources.Amounts{corev1.ResourceCPU: 600},
		}
		require.Empty(t, f.Assume(pod, nil).VirtualNode)
		f.Wake(false)
		require.Equal(t, "r1", f.of("c1", "c1-b", 600).VirtualNode, "c2-a does not wait for r")
		moving := &scheduler.Pod{
			UID: "c1-c", Namespace: "ns", Name: "c1-c", Consumer: "c1", Owner: "c1", Account: scheduler.Account{Consumer: "c1"},
			Selections: []scheduler.Selection{{Only: true, IDs: sets.New("q")}}, Requests: resources.Amounts{corev1.ResourceCPU: 500},
		}
		require.Equal(t, "q1", f.Assume(moving, nil).VirtualNode)
	})
}

// The pods of this cluster have no grants. They take turns with the pods of consumers all the same.
func TestPodsOfThisClusterHaveAShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		require.Equal(t, "q1", f.try("local-a", 1500, nil))
		require.Equal(t, "q1", f.of("c1", "c1-a", 500).VirtualNode)
		require.Empty(t, f.try("local-b", 500, nil))
		time.Sleep(time.Second)
		require.Empty(t, f.of("c1", "c1-b", 500).VirtualNode)
		f.gone("c1-a")
		require.Equal(t, []string{"c1-b"}, f.woken())
	})
}
