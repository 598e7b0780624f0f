package state

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/queue"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
)

// try decides about a pod of so many thousandths of a CPU.
func (f *Federation) try(name string, milli int64, policy *scheduler.Policy) (virtualNode string) {
	d := f.Assume(&scheduler.Pod{
		UID: types.UID(name), Namespace: "ns", Name: name, Requests: resources.Amounts{corev1.ResourceCPU: milli, corev1.ResourcePods: 1},
	}, policy)
	return d.VirtualNode
}

func (f *Federation) gone(name string) {
	f.ObserveGone(types.NamespacedName{Namespace: "ns", Name: name}, "")
}

// woken are the names of the pods to try now.
func (f *Federation) woken() []string {
	names, _ := f.Wake(false)
	var short []string
	for _, name := range names {
		short = append(short, name.Name)
	}
	return short
}

func TestOnlyAsManyPodsAreWokenAsFitIntoWhatBecameFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		require.Equal(t, "q1", f.try("one", 1000, nil))
		require.Equal(t, "q1", f.try("two", 1000, nil))
		for _, pod := range []string{"c", "b", "large", "a"} {
			milli := int64(500)
			if pod == "large" {
				milli = 1600
			}
			require.Empty(t, f.try(pod, milli, nil))
			time.Sleep(time.Second)
		}
		f.Wake(false)
		require.Empty(t, f.woken(), "nothing changed")
		f.gone("one")
		require.Equal(t, []string{"c", "b"}, f.woken(), "those that wait longest")
		require.Equal(t, "q1", f.try("c", 500, nil))
		f.gone("b")
		require.Equal(t, []string{"a"}, f.woken(), "the others follow if these do not take it")
		require.Equal(t, "q1", f.try("a", 500, nil))
		require.Empty(t, f.woken())
		f.gone("two")
		require.Empty(t, f.woken(), "that is not enough for the large one")
		f.gone("a")
		f.gone("c")
		require.Equal(t, []string{"large"}, f.woken())
		require.Equal(t, "q1", f.try("large", 1600, nil))
	})
}

func TestAChangeWakesThosePodsThatItConcerns(t *testing.T) {
	filter := func(expression string) *scheduler.Policy {
		program, err := cel.NewFilter(expression)
		require.NoError(t, err)
		return &scheduler.Policy{Filter: program}
	}
	bubble(t, func(t *testing.T) {
		f := withProviders("q", "r")
		ready := usable("r")
		down := usable("r")
		down.Ready = false
		f.Schedule(down)
		require.Equal(t, "q1", f.try("full", 2000, nil))
		require.Empty(t, f.try("any", 500, nil))
		require.Empty(t, f.try("of-r", 500, &scheduler.Policy{Named: sets.New("r")}))
		require.Empty(t, f.try("of-q", 500, &scheduler.Policy{Named: sets.New("q")}))
		require.Empty(t, f.try("of-none", 500, filter("provider.id == 's'")))
		require.Empty(t, f.try("large", 3000, nil))
		require.Empty(t, f.woken())

		require.True(t, f.Schedule(ready))
		require.ElementsMatch(t, []string{"any", "of-r", "of-q", "of-none"}, f.woken(), "not the one that does not fit")
		require.Equal(t, "r1", f.try("any", 500, nil))
		require.Empty(t, f.try("of-q", 500, &scheduler.Policy{Named: sets.New("q")}))
		require.Equal(t, "r1", f.try("of-r", 500, &scheduler.Policy{Named: sets.New("r")}))
		require.Empty(t, f.try("of-none", 500, filter("provider.id == 's'")))
		f.Schedule(down)
		require.Empty(t, f.woken(), "nothing can be assigned there now")
		f.Schedule(ready)
		require.Equal(t, []string{"of-none"}, f.woken(), "not the one that may not run there")
		require.Empty(t, f.try("of-none", 500, filter("provider.id == 's'")))

		greedy := filter("provider.id == 'r' && provider.resources.free['cpu'] >= 1.5")
		require.Empty(t, f.try("greedy", 500, greedy))
		f.gone("any")
		require.Equal(t, []string{"greedy"}, f.woken(), "its filter reads what is free; that of the other does not")
		require.Equal(t, "r1", f.try("greedy", 500, greedy))
	})
}

// It was full when the provider became ready, and so was not tried then.
func TestAPodIsWokenByRoomOfAProviderThatWasNotReady(t *testing.T) {
	f := withProviders("q")
	require.Equal(t, "q1", f.try("full", 2000, nil))
	down := usable("q")
	down.Ready = false
	f.Schedule(down)
	require.Empty(t, f.try("waits", 500, nil))
	f.Schedule(usable("q"))
	require.Empty(t, f.woken())
	f.gone("full")
	require.Equal(t, []string{"waits"}, f.woken())
}

func TestAPodIsTriedNowAndThenWithoutAChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		const pods = 100
		for i := range pods {
			require.Empty(t, f.try(fmt.Sprint(i), 3000, nil))
		}
		tried, most := map[string]int{}, 0
		for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(time.Second) {
			now := f.woken()
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
	f := withProviders(names...)
	for _, id := range names {
		down := usable(id)
		down.Ready = false
		f.Schedule(down)
	}
	const pods = 3000
	for i := range pods {
		require.Empty(t, f.try(fmt.Sprint(i), 1, nil))
	}
	for _, id := range names {
		f.Schedule(usable(id))
	}
	tried, more := 0, true
	for batches := 0; more; batches++ {
		var now []types.NamespacedName
		now, more = f.Wake(false)
		require.LessOrEqual(t, len(now), queue.MaxWoken)
		require.Less(t, batches, 100)
		for _, pod := range now {
			require.NotEmpty(t, f.try(pod.Name, 1, nil))
			tried++
		}
	}
	require.Equal(t, pods, tried)
}

// After any changes in any order: no pod waits that could be assigned.
func TestNoPodWaitsThatFits(t *testing.T) {
	reads, err := cel.NewFilter("provider.resources.free['cpu'] >= 1.2 || provider.id == 'p0'")
	require.NoError(t, err)
	policies := []*scheduler.Policy{nil, nil, {Named: sets.New("p0", "p2")}, {Filter: reads}}
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				f := withProviders("p0", "p1", "p2")
				milli := func(i int) int64 { return int64(200 + 300*(i%5)) }
				for range 300 {
					i := random.IntN(30)
					pod := fmt.Sprint(i)
					switch random.IntN(6) {
					case 0, 1, 2:
						if !f.Pod(types.UID(pod)).Assumed {
							f.try(pod, milli(i), policies[i%4])
						}
					case 3:
						f.gone(pod)
					case 4:
						f.Forget(types.UID(pod))
					case 5:
						p := usable(fmt.Sprintf("p%d", random.IntN(3)))
						p.Ready, p.Cordoned = random.IntN(3) > 0, random.IntN(4) == 0
						p.Slices[0].Granted = resources.Amounts{corev1.ResourceCPU: int64(500 * random.IntN(6))}
						f.Schedule(p)
					}
				}
				for more := true; more; {
					var names []types.NamespacedName
					names, more = f.Wake(false)
					for _, name := range names {
						var i int
						_, err := fmt.Sscan(name.Name, &i)
						require.NoError(t, err)
						f.try(name.Name, milli(i), policies[i%4])
					}
				}
				for i := range 30 {
					pod := fmt.Sprint(i)
					if record := f.pods[types.UID(pod)]; record != nil && record.unassigned {
						require.Empty(t, f.try(pod, milli(i), policies[i%4]), "pod %s waited", pod)
					}
				}
			})
		})
	}
}

func BenchmarkWake(bench *testing.B) {
	f := withProviders("q")
	f.try("short", 1000, nil)
	for i := range 3000 {
		f.try(fmt.Sprint(i), 3000, nil)
	}
	for bench.Loop() {
		f.gone("short")
		f.try("short", 1000, nil)
		f.Wake(false)
	}
}

// alone is a pod that must not be at a provider with another one.
func alone(name string) *scheduler.Pod {
	of := newPod(name, "100m")
	of.Labels = map[string]string{"app": "web"}
	of.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: v1alpha1.ProviderLabel, LabelSelector: &metav1.LabelSelector{MatchLabels: of.Labels},
		}},
	}}
	own := constraints.Of(of, nil)
	return &scheduler.Pod{
		UID: of.UID, Namespace: of.Namespace, Name: name, Labels: of.Labels, Requests: resources.PodRequests(&of.Spec),
		Constraints: own, Peer: constraints.PeerOf(of, own),
	}
}

// A pod that waits because of the places of others is tried when one of them is assigned or gone, although no capacity
// became free: a spread lets it in once the other domains have more pods.
func TestPodsThatWaitForOthersAreWokenWhenOthersMove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("a", "b")
		require.NotEmpty(t, f.Assume(alone("one"), nil).VirtualNode)
		require.NotEmpty(t, f.Assume(alone("two"), nil).VirtualNode)
		require.Empty(t, f.Assume(alone("three"), nil).VirtualNode)
		require.Empty(t, f.try("full", 5000, nil))
		f.Wake(false)
		require.Empty(t, f.woken(), "nothing changed")

		require.NotEmpty(t, f.try("other", 100, nil))
		require.Equal(t, []string{"three"}, f.woken(), "the place of another pod counts in its constraints")
		require.Empty(t, f.Assume(alone("three"), nil).VirtualNode)
		f.gone("two")
		require.Equal(t, []string{"three"}, f.woken())
		require.NotEmpty(t, f.Assume(alone("three"), nil).VirtualNode)
		require.Empty(t, f.woken())

		require.Empty(t, f.Assume(alone("four"), nil).VirtualNode)
		ended := newPod("one", "100m")
		ended.Status.Phase = corev1.PodSucceeded
		f.ObserveEnded(ended, placed("a1"))
		require.Equal(t, []string{"four"}, f.woken(), "a pod that has ended keeps no other away")
		require.Equal(t, "a1", f.Assume(alone("four"), nil).VirtualNode)
	})
}

// No more pods leave unreachable providers than may be together elsewhere.
func TestAReservedPlaceKeepsOthersAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("a", "b", "c")
		require.Equal(t, "a1", f.Assume(alone("one"), nil).VirtualNode)
		require.Equal(t, "b1", f.Assume(alone("two"), nil).VirtualNode)
		for _, name := range []string{"a", "b"} {
			down := usable(name)
			down.Ready = false
			f.Schedule(down)
		}
		require.Equal(t, "c1", f.ReserveElsewhere(alone("one"), nil).VirtualNode)
		require.Empty(t, f.ReserveElsewhere(alone("two"), nil).VirtualNode)
		require.Equal(t, "c1", f.Assume(alone("one"), nil).VirtualNode, "its own reservation does not keep it away")
	})
}
