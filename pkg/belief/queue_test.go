package belief

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/belief/queue"
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// try decides about a pod of so many thousandths of a CPU.
func (b *Belief) try(name string, milli int64, policy *scheduler.Policy) (virtualNode string) {
	var d scheduler.Decision
	b.Decide(&scheduler.Pod{
		UID: types.UID(name), Namespace: "ns", Name: name, Requests: resources.Amounts{corev1.ResourceCPU: milli, corev1.ResourcePods: 1},
	}, policy, &d)
	return d.VirtualNode
}

func (b *Belief) gone(name string) {
	b.ObserveGone(types.NamespacedName{Namespace: "ns", Name: name}, "")
}

// woken are the names of the pods to try now.
func (b *Belief) woken() []string {
	names, _ := b.Wake()
	var short []string
	for _, name := range names {
		short = append(short, name.Name)
	}
	return short
}

func TestOnlyAsManyPodsAreWokenAsFitIntoWhatBecameFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		require.Equal(t, "q1", b.try("one", 1000, nil))
		require.Equal(t, "q1", b.try("two", 1000, nil))
		for _, pod := range []string{"c", "b", "large", "a"} {
			milli := int64(500)
			if pod == "large" {
				milli = 1600
			}
			require.Empty(t, b.try(pod, milli, nil))
			time.Sleep(time.Second)
		}
		b.Wake()
		require.Empty(t, b.woken(), "nothing changed")
		b.gone("one")
		require.Equal(t, []string{"c", "b"}, b.woken(), "those that wait longest")
		require.Equal(t, "q1", b.try("c", 500, nil))
		b.gone("b")
		require.Equal(t, []string{"a"}, b.woken(), "the others follow if these do not take it")
		require.Equal(t, "q1", b.try("a", 500, nil))
		require.Empty(t, b.woken())
		b.gone("two")
		require.Empty(t, b.woken(), "that is not enough for the large one")
		b.gone("a")
		b.gone("c")
		require.Equal(t, []string{"large"}, b.woken())
		require.Equal(t, "q1", b.try("large", 1600, nil))
	})
}

func TestAChangeWakesThosePodsThatItConcerns(t *testing.T) {
	filter := func(expression string) *scheduler.Policy {
		program, err := criteria.NewFilter(expression)
		require.NoError(t, err)
		return &scheduler.Policy{Filter: program}
	}
	bubble(t, func(t *testing.T) {
		b := withProviders("q", "r")
		ready := usable("r")
		down := usable("r")
		down.Ready = false
		b.Schedule(down)
		require.Equal(t, "q1", b.try("full", 2000, nil))
		require.Empty(t, b.try("any", 500, nil))
		require.Empty(t, b.try("of-r", 500, &scheduler.Policy{Named: sets.New("r")}))
		require.Empty(t, b.try("of-q", 500, &scheduler.Policy{Named: sets.New("q")}))
		require.Empty(t, b.try("of-none", 500, filter("provider.id == 's'")))
		require.Empty(t, b.try("large", 3000, nil))
		require.Empty(t, b.woken())

		require.True(t, b.Schedule(ready))
		require.ElementsMatch(t, []string{"any", "of-r", "of-q", "of-none"}, b.woken(), "not the one that does not fit")
		require.Equal(t, "r1", b.try("any", 500, nil))
		require.Empty(t, b.try("of-q", 500, &scheduler.Policy{Named: sets.New("q")}))
		require.Equal(t, "r1", b.try("of-r", 500, &scheduler.Policy{Named: sets.New("r")}))
		require.Empty(t, b.try("of-none", 500, filter("provider.id == 's'")))
		b.Schedule(down)
		require.Empty(t, b.woken(), "nothing can be assigned there now")
		b.Schedule(ready)
		require.Equal(t, []string{"of-none"}, b.woken(), "not the one that may not run there")
		require.Empty(t, b.try("of-none", 500, filter("provider.id == 's'")))

		greedy := filter("provider.id == 'r' && provider.resources.free['cpu'] >= 1.5")
		require.Empty(t, b.try("greedy", 500, greedy))
		b.gone("any")
		require.Equal(t, []string{"greedy"}, b.woken(), "its filter reads what is free; that of the other does not")
		require.Equal(t, "r1", b.try("greedy", 500, greedy))
	})
}

// It was full when the provider became ready, and so was not tried then.
func TestAPodIsWokenByRoomOfAProviderThatWasNotReady(t *testing.T) {
	b := withProviders("q")
	require.Equal(t, "q1", b.try("full", 2000, nil))
	down := usable("q")
	down.Ready = false
	b.Schedule(down)
	require.Empty(t, b.try("waits", 500, nil))
	b.Schedule(usable("q"))
	require.Empty(t, b.woken())
	b.gone("full")
	require.Equal(t, []string{"waits"}, b.woken())
}

func TestAPodIsTriedNowAndThenWithoutAChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		const pods = 100
		for i := range pods {
			require.Empty(t, b.try(fmt.Sprint(i), 3000, nil))
		}
		tried, most := map[string]int{}, 0
		for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(time.Second) {
			now := b.woken()
			most = max(most, len(now))
			for _, pod := range now {
				tried[pod]++ // Its reconciliation may fail, and not decide.
			}
		}
		require.Len(t, tried, pods)
		for pod, count := range tried {
			require.GreaterOrEqual(t, count, 13, pod)
			require.LessOrEqual(t, count, 20, pod)
		}
		require.Less(t, most, pods/3, "not all at once")
	})
}

// The others follow: a decision does not wait for long, and no pod is forgotten.
func TestManyPodsAreWokenInBatches(t *testing.T) {
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("p%02d", i))
	}
	b := withProviders(names...)
	for _, id := range names {
		down := usable(id)
		down.Ready = false
		b.Schedule(down)
	}
	const pods = 3000
	for i := range pods {
		require.Empty(t, b.try(fmt.Sprint(i), 1, nil))
	}
	for _, id := range names {
		b.Schedule(usable(id))
	}
	tried, more := 0, true
	for batches := 0; more; batches++ {
		var now []types.NamespacedName
		now, more = b.Wake()
		require.LessOrEqual(t, len(now), queue.MaxWoken)
		require.Less(t, batches, 100)
		for _, pod := range now {
			require.NotEmpty(t, b.try(pod.Name, 1, nil))
			tried++
		}
	}
	require.Equal(t, pods, tried)
}

// Whatever changes in whatever order: no pod waits that could be assigned.
func TestNoPodWaitsThatFits(t *testing.T) {
	reads, err := criteria.NewFilter("provider.resources.free['cpu'] >= 1.2 || provider.id == 'p0'")
	require.NoError(t, err)
	policies := []*scheduler.Policy{nil, nil, {Named: sets.New("p0", "p2")}, {Filter: reads}}
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				b := withProviders("p0", "p1", "p2")
				milli := func(i int) int64 { return int64(200 + 300*(i%5)) }
				for range 300 {
					i := random.IntN(30)
					pod := fmt.Sprint(i)
					switch random.IntN(6) {
					case 0, 1, 2:
						if at, _ := b.PendingAssignment(types.UID(pod)); !at {
							b.try(pod, milli(i), policies[i%4])
						}
					case 3:
						b.gone(pod)
					case 4:
						b.Unreserve(types.UID(pod))
					case 5:
						p := usable(fmt.Sprintf("p%d", random.IntN(3)))
						p.Ready, p.Cordoned = random.IntN(3) > 0, random.IntN(4) == 0
						p.Slices[0].Granted = resources.Amounts{corev1.ResourceCPU: int64(500 * random.IntN(6))}
						b.Schedule(p)
					}
				}
				for more := true; more; {
					var names []types.NamespacedName
					names, more = b.Wake()
					for _, name := range names {
						var i int
						_, err := fmt.Sscan(name.Name, &i)
						require.NoError(t, err)
						b.try(name.Name, milli(i), policies[i%4])
					}
				}
				for i := range 30 {
					pod := fmt.Sprint(i)
					if record := b.pods[types.UID(pod)]; record != nil && record.unassigned {
						require.Empty(t, b.try(pod, milli(i), policies[i%4]), "pod %s waited", pod)
					}
				}
			})
		})
	}
}

func BenchmarkWake(bench *testing.B) {
	b := withProviders("q")
	b.try("short", 1000, nil)
	for i := range 3000 {
		b.try(fmt.Sprint(i), 3000, nil)
	}
	for bench.Loop() {
		b.gone("short")
		b.try("short", 1000, nil)
		b.Wake()
	}
}
