package state

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/queue"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// ofConsumer is the namespace of the pods of newPod, which come from consumer c1.
var ofConsumer = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
	Name: "ns", Labels: map[string]string{"liqo.io/remote-cluster-id": "c1"},
	Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant-c1/c1"},
}}

// ofUser is a pod that Liqo made of a ShadowPod of a user of consumer c1; "" is not known.
func ofUser(user, name, cpu string) *corev1.Pod {
	pod := newPod(name, cpu)
	if user != "" {
		pod.Labels["liqo.io/creator-user"] = user
	}
	pod.OwnerReferences = []metav1.OwnerReference{{
		Kind: "ShadowPod", Name: name, UID: types.UID("shadow-" + name), Controller: ptr.To(true),
	}}
	return pod
}

// remade is the next pod that Liqo makes of the ShadowPod of a pod.
func remade(pod *corev1.Pod) *corev1.Pod {
	next := pod.DeepCopy()
	next.UID += "+"
	next.Annotations, next.Status = nil, corev1.PodStatus{}
	return next
}

// consume decides about a pod of consumer c1.
func (f *Federation) consume(of *corev1.Pod) (virtualNode, beyond string) {
	var d scheduler.Decision
	f.ObserveAccount(of, placement.AccountOf(of, ofConsumer))
	d = f.Assume((&placement.Criteria{}).Pod(of, ofConsumer), nil)
	return d.VirtualNode, d.Beyond
}

// fits and isBeyond decide about a pod, and require that its consumer's grant has, or has not, enough for it.
func (f *Federation) fits(t require.TestingT, of *corev1.Pod, why ...any) {
	at, beyond := f.consume(of)
	require.Empty(t, beyond, why...)
	require.NotEmpty(t, at, why...)
}

func (f *Federation) isBeyond(t require.TestingT, of *corev1.Pod, why ...any) {
	at, beyond := f.consume(of)
	require.Empty(t, at, why...)
	require.NotEmpty(t, beyond, why...)
}

// users are grants of thousandths of a CPU by user.
type users map[string]int64

// grant grants consumer c1 these.
func (f *Federation) grant(to users) {
	g := &scheduler.Grant{ByCreator: map[string]resources.Amounts{}}
	for user, milli := range to {
		if g.Sum == nil {
			g.Sum = resources.Amounts{}
		}
		g.ByCreator[user] = resources.Amounts{corev1.ResourceCPU: milli}
		g.Sum.Add(g.ByCreator[user])
	}
	f.SetGrant("c1", g)
}

func assignedBefore(pod *corev1.Pod) *corev1.Pod {
	pod.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: "2026-03-01T12:00:00Z"}
	return pod
}

func TestNewPodsAreBoundedByTheGrantOfTheirUser(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("p", "q", "r")
		f.fits(t, ofUser("one", "before", "500m"), "no grant was read")
		f.grant(users{"one": 1500, "two": 500})
		f.fits(t, ofUser("one", "a", "1"), "a grant is used up to the last bit")
		_, beyond := f.consume(ofUser("one", "b", "500m"))
		require.Equal(t, "exceeds the remaining grant of user one of consumer c1: cpu: 500m requested, 1500m granted", beyond)
		require.Equal(t, 1, f.Counts().Unassigned)
		f.fits(t, ofUser("two", "c", "500m"), "another slice has its own grant")
		require.NotEmpty(t, f.try("local", 100, nil), "pods of this cluster have no grant")
		f.fits(t, newPod("administrator", "100m"), "Liqo did not make it of a ShadowPod")
		f.fits(t, assignedBefore(ofUser("one", "moved", "500m")), "a pod that moves is not bounded")

		// Denied, not decided, deleted, or never there.
		f.grant(users{"two": 500})
		f.isBeyond(t, ofUser("one", "b", "1m"))
		f.isBeyond(t, ofUser("three", "d", "0"), "it requests nothing but to be there")
		f.grant(nil)
		f.isBeyond(t, ofUser("two", "e", "1m"))
		f.SetGrant("c1", nil)
		f.fits(t, ofUser("one", "b", "1m"), "nothing is left of the consumer")
	})
}

// One of two slices is lowered, denied or deleted while its pods run. The pods of the other slice do not wait for them.
func TestASliceDoesNotBoundThePodsOfAnother(t *testing.T) {
	for name, after := range map[string]users{"lowered": {"one": 100, "two": 500}, "denied": {"two": 500}} {
		t.Run(name, func(t *testing.T) {
			f := withProviders("p", "q")
			f.grant(users{"one": 1000, "two": 500})
			f.fits(t, ofUser("one", "a", "1"))
			f.grant(after)
			f.fits(t, ofUser("two", "b", "500m"))
			f.isBeyond(t, ofUser("two", "c", "1m"))
		})
	}
}

// If Liqo enforces no quotas, no pod has the label of its user, or the consumer chooses its value.
func TestPodsWithoutAUserAreBoundedByAllGrants(t *testing.T) {
	f := withProviders("p", "q")
	f.grant(users{"one": 1000, "two": 1000})
	f.fits(t, ofUser("one", "a", "500m"))
	f.isBeyond(t, ofUser("", "b", "1501m"))
	f.fits(t, ofUser("", "b", "1200m"))
	f.isBeyond(t, ofUser("two", "c", "301m"), "both together have it once")
	f.isBeyond(t, ofUser("unknown", "d", "1m"))
	f.fits(t, ofUser("two", "c", "300m"))
}

func TestPodsBeyondTheGrantAreTriedWhenTheyFitIntoIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("p", "q")
		f.grant(users{"one": 1000})
		f.fits(t, ofUser("one", "a", "1"))
		for _, pod := range []string{"b", "c", "d"} {
			f.isBeyond(t, ofUser("one", pod, "1"))
			time.Sleep(time.Second)
		}
		require.Empty(t, f.woken(), "nothing changed")
		require.Empty(t, f.grown)
		f.Schedule(usable("r"))
		f.try("local", 100, nil)
		f.gone("local")
		require.Empty(t, f.woken(), "providers do not concern them")
		f.gone("a")
		f.ObserveNoSuccessor(name(newPod("a", "1")))
		require.Equal(t, []string{"b"}, f.woken(), "as many as fit, those that wait longest first")
		f.fits(t, ofUser("one", "b", "1"))
		require.Empty(t, f.woken())
		f.grant(users{"one": 2500})
		require.Equal(t, []string{"c"}, f.woken(), "the grant has grown")
		f.fits(t, ofUser("one", "c", "1"))
		require.Empty(t, f.woken())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"d"}, f.woken(), "at the latest after a minute")
		f.SetGrant("c1", nil)
		require.Equal(t, []string{"d"}, f.woken(), "no grant bounds it")
	})
}

// A new leader decides about all pods, also about those beyond a grant that is not there any more.
func TestAPodBeyondAGrantThatIsGoneIsTriedWhenThereIsANewOne(t *testing.T) {
	f := withProviders("q")
	f.grant(nil)
	f.isBeyond(t, ofUser("one", "a", "1"))
	require.Empty(t, f.woken())
	f.grant(users{"one": 1000})
	require.Equal(t, []string{"a"}, f.woken())
}

func TestNoMorePodsAreTriedAtOnceThanTheQueueWakes(t *testing.T) {
	f := manyBeyond(10_000)
	f.grant(users{"one": 1 << 40})
	names, more := f.Wake(false)
	require.Len(t, names, queue.MaxWoken)
	require.True(t, more)
}

// Many pods of one consumer wait for longer than one of another.
func TestConsumersAreTriedWithinTheirGrants(t *testing.T) {
	f := manyBeyond(queue.MaxWoken)
	f.SetGrant("c2", &scheduler.Grant{})
	var d scheduler.Decision
	pod := (&placement.Criteria{}).Pod(ofUser("one", "z", "1"), ofConsumer)
	pod.Account.Consumer, pod.Consumer = "c2", "c2"
	d = f.Assume(pod, nil)
	require.NotEmpty(t, d.Beyond)
	f.SetGrant("c2", &scheduler.Grant{ByCreator: map[string]resources.Amounts{"one": {corev1.ResourceCPU: 1000}}})
	f.grant(users{"one": 1 << 40})
	require.Equal(t, "z", f.woken()[1], "as many of one as of the other")
	require.Len(t, f.woken(), 1, "the last of c1")
	require.Empty(t, f.woken())
	require.Empty(t, f.grown)
}

// manyBeyond has so many pods that wait for the grant of consumer c1.
func manyBeyond(pods int) *Federation {
	f := withProviders("q")
	f.grant(nil)
	for i := range pods {
		f.consume(ofUser("one", "pod-"+strconv.Itoa(i), "1"))
	}
	f.Wake(false)
	return f
}

// Between two providers a pod keeps its part of the grant: it will have it again.
func TestAPodThatMovesKeepsItsPartOfTheGrant(t *testing.T) {
	for name, leave := range map[string]func(*Federation, *corev1.Pod){
		"this leader has seen it leave": func(f *Federation, pod *corev1.Pod) {
			f.ObserveAssigned(pod, placed("q1"))
			f.ObserveLeft(pod, placed("q1"))
		},
		"the leader before has": func(f *Federation, pod *corev1.Pod) {
			at, _ := f.consume(pod)
			require.Empty(t, at, "it waits for another provider")
		},
		"its assignment was refused": func(f *Federation, pod *corev1.Pod) {
			triedAt(pod, "q1", -time.Minute)
			f.fits(t, assignedBefore(pod))
			f.Forget(pod.UID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := withProviders("q")
				f.grant(users{"one": 1000})
				pod := ofUser("one", "pod", "1")
				triedAt(pod, "q1", time.Minute)
				pod.Annotations[v1alpha1.AssignedAtAnnotation] = "2026-03-01T12:00:00Z"
				f.ObserveAccount(pod, placement.AccountOf(pod, ofConsumer))
				leave(f, pod)
				f.isBeyond(t, ofUser("one", "other", "1"))
				require.Equal(t, "q1", f.try("local", 2000, nil), "it takes no room of a provider")
				f.gone("local")
				f.gone("pod")
				f.ObserveNoSuccessor(types.NamespacedName{Namespace: "ns", Name: "pod"})
				require.Contains(t, f.woken(), "other")
			})
		})
	}
}

// The assignment of a new pod was refused: it has no part of the grant.
func TestAnAssignmentOfANewPodThatIsNotWrittenTakesNothing(t *testing.T) {
	f := withProviders("q")
	f.grant(users{"one": 1000})
	f.fits(t, ofUser("one", "a", "1"))
	f.Forget("a")
	f.fits(t, ofUser("one", "b", "1"))
}

// A consumer may change the labels of its pods if Liqo enforces no quotas, and a pod may be counted before its
// namespace is known.
func TestTheAccountOfACountedPodStays(t *testing.T) {
	f := withProviders("p", "q")
	f.grant(users{"one": 1000, "two": 1000})
	pod := ofUser("one", "a", "1")
	f.ObserveAssigned(pod, placed("q1"))
	require.False(t, f.Pod(pod.UID).HasAccount)
	f.fits(t, ofUser("one", "b", "500m"), "it is not known whose it is")
	f.ObserveAccount(pod, placement.AccountOf(pod, ofConsumer))
	require.True(t, f.Pod(pod.UID).HasAccount)
	f.isBeyond(t, ofUser("one", "c", "1m"))
	relabelled := ofUser("two", "a", "1")
	f.ObserveAccount(relabelled, placement.AccountOf(relabelled, ofConsumer))
	f.ObserveAssigned(relabelled, placed("q1"))
	f.isBeyond(t, ofUser("one", "c", "1m"))
	f.ObserveLeft(assignedBefore(relabelled), placed("q1"))
	f.fits(t, relabelled)
	f.isBeyond(t, ofUser("one", "c", "1m"))
}

// A provider evicts a pod, and Liqo makes another one of the same ShadowPod, which its quota has admitted before the
// grant shrank.
func TestTheSuccessorOfAPodIsNotBounded(t *testing.T) {
	one, other := ofUser("one", "a", "1"), ofUser("one", "other", "1m")
	evicted := one.DeepCopy()
	evicted.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	succeeded := one.DeepCopy()
	succeeded.Status.Phase = corev1.PodSucceeded
	another := remade(one)
	another.OwnerReferences[0].UID = "another"
	for name, tc := range map[string]struct {
		meanwhile func(*Federation)
		next      *corev1.Pod
		// kept is whether a part is kept, fits whether the next pod has it.
		kept, fits bool
	}{
		"it is gone":                      {func(f *Federation) { f.gone("a") }, remade(one), true, true},
		"it was not seen that it is gone": {func(*Federation) {}, remade(one), false, true},
		"its provider has evicted it": {func(f *Federation) {
			f.ObserveEnded(evicted, placed("q1"))
			f.gone("a")
		}, remade(one), true, true},
		"it has succeeded": {func(f *Federation) {
			f.ObserveEnded(succeeded, placed("q1"))
			f.gone("a")
		}, remade(one), false, false},
		"it has ended, and is nowhere":   {func(f *Federation) { f.ObserveGone(name(one), one.UID) }, remade(one), false, false},
		"another ShadowPod has its name": {func(f *Federation) { f.gone("a") }, another, true, false},
		"the ShadowPod is gone": {func(f *Federation) {
			f.gone("a")
			f.ObserveNoSuccessor(name(one))
		}, remade(one), false, false},
		"it is made again after a minute": {func(f *Federation) {
			f.gone("a")
			time.Sleep(successorWithin)
			f.expire(f.cfg.Clock.Now())
		}, remade(one), false, false},
		"an administrator makes the other": {func(f *Federation) { f.gone("a") }, newPod("a", "1"), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := withProviders("q")
				f.grant(users{"one": 1000})
				f.fits(t, one)
				tc.meanwhile(f)
				require.Equal(t, tc.kept, f.KeptForSuccessor(types.NamespacedName{Namespace: "ns", Name: "a"}) == "shadow-a")
				if tc.kept {
					f.isBeyond(t, other, "its part is kept")
				}
				f.grant(users{"one": 500})
				if !tc.fits {
					f.isBeyond(t, tc.next)
					return
				}
				f.fits(t, tc.next)
			})
		})
	}
}

// From the moment that the next pod is seen, and until it is decided about, nothing else has its part.
func TestThePartOfASuccessorIsItsOwnAtOnce(t *testing.T) {
	f := withProviders("q")
	f.grant(users{"one": 1000})
	pod := ofUser("one", "a", "1")
	f.fits(t, pod)
	f.gone("a")
	next := remade(pod)
	f.Earlier(next)
	require.Empty(t, f.predecessors)
	f.isBeyond(t, ofUser("one", "other", "1m"))
	f.fits(t, next)
	f.Forget(next.UID)
	f.isBeyond(t, ofUser("one", "other", "1m"), "its assignment was refused")
	f.gone("a")
	f.ObserveNoSuccessor(name(next))
	f.fits(t, ofUser("one", "other", "1"))
	f.gone("other")
	f.ObserveNoSuccessor(types.NamespacedName{Namespace: "ns", Name: "other"})
	_, requests := f.scheduler.Counted(keptFor(name(next)))
	require.Nil(t, requests)
}

// Two decisions with expressions are made at once, and each leaves enough for one.
func TestDecisionsAtOnceDoNotExceedAGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := withProviders("q")
		f.grant(users{"one": 1000})
		filter, err := cel.NewFilter("true")
		require.NoError(t, err)
		f.cfg.Clock = &during{call: func() { f.fits(t, ofUser("one", "other", "1")) }}
		pod := (&placement.Criteria{Filter: filter}).Pod(ofUser("one", "pod", "1"), ofConsumer)
		d := f.Assume(pod, nil)
		require.Empty(t, d.VirtualNode)
		require.NotEmpty(t, d.Beyond)
	})
}

// large returns a Federation with one provider that has capacity for everything.
func large() *Federation {
	f := none()
	f.SetProvider("q", ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{})
	q := usable("q")
	q.Namespaces = sets.New("ns", "other")
	q.Slices[0].Granted = resources.Amounts{corev1.ResourceCPU: 1 << 30}
	f.Schedule(q)
	return f
}

// consumed is a ShadowPod of a consumer, with its present pod.
type consumed struct {
	user  string
	milli int64
	pod   *corev1.Pod
	// at is where it is assigned.
	at string
}

// consumers makes ShadowPods in two namespaces.
type consumers struct{ made int }

func (c *consumers) create(t *rapid.T, user string, milli int64) *consumed {
	c.made++
	pod := ofUser(user, "pod-"+strconv.Itoa(c.made), strconv.FormatInt(milli, 10)+"m")
	pod.Namespace = rapid.SampledFrom([]string{"ns", "other"}).Draw(t, "namespace")
	return &consumed{user: user, milli: milli, pod: pod}
}

// moves has the pod leave its provider, and unwritten has its assignment refused.
func (p *consumed) moves(f *Federation) {
	assignedBefore(p.pod)
	f.ObserveAssigned(p.pod, placed("q1"))
	f.ObserveLeft(p.pod, placed("q1"))
}

func (p *consumed) evicted(t *rapid.T, f *Federation) {
	if rapid.Bool().Draw(t, "its end is seen") {
		p.pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
		f.ObserveEnded(p.pod, placed("q1"))
	}
	f.ObserveGone(name(p.pod), "")
	p.pod = remade(p.pod)
}

func (p *consumed) deleted(f *Federation) {
	f.ObserveGone(name(p.pod), "")
	f.ObserveNoSuccessor(name(p.pod))
}

// An honest consumer creates ShadowPods within Liqo's quotas: for each user, the present grant of its slice, less the
// requests of its ShadowPods. None of them is beyond a grant, after any changes of them and of the slices, in any
// namespace.
func TestTheGrantRefusesNoPodThatItsSlicesAdmit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, of, quota, used := large(), consumers{}, users{"one": 1000, "two": 3000}, users{}
		f.grant(quota)
		var pods []*consumed
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			user := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "user")
			var p *consumed
			i := -1
			if len(pods) > 0 {
				i = rapid.IntRange(0, len(pods)-1).Draw(t, "pod")
				p = pods[i]
			}
			steps := []string{"create", "create", "move", "evict", "delete", "refuse", "slice", "lead"}
			switch step := rapid.SampledFrom(steps).Draw(t, "step"); {
			case step == "create":
				if left := quota[user] - used[user]; left > 0 {
					p = of.create(t, user, rapid.Int64Range(1, left).Draw(t, "cpu"))
					used[user] += p.milli
					pods = append(pods, p)
					f.fits(t, p.pod)
				}
			case step == "slice":
				// Lowered, raised, denied, deleted and made again.
				if milli := rapid.SampledFrom([]int64{0, 500, 1000, 4000}).Draw(t, "granted"); milli > 0 {
					quota[user] = milli
				} else {
					delete(quota, user)
				}
				f.grant(maps.Clone(quota))
			case step == "lead":
				f = large()
				f.grant(maps.Clone(quota))
				for _, p := range pods {
					f.ObserveAccount(p.pod, placement.AccountOf(p.pod, ofConsumer))
					f.ObserveAssigned(assignedBefore(p.pod), placed("q1"))
				}
			case p == nil:
			case step == "delete":
				p.deleted(f)
				used[p.user] -= p.milli
				pods = append(pods[:i], pods[i+1:]...)
			case step == "evict":
				p.evicted(t, f)
				f.fits(t, p.pod)
			case step == "move":
				p.moves(f)
				f.fits(t, p.pod)
			case step == "refuse":
				p.moves(f)
				f.fits(t, p.pod)
				f.Forget(p.pod.UID)
				f.fits(t, p.pod)
			}
		}
	})
}

// If Liqo enforces no quotas, a consumer may write and change any labels: all its assigned pods still fit into its
// grants.
func TestNoLabelsHaveMoreThanTheGrants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, of, quota := large(), consumers{}, users{"one": 1000, "two": 1000}
		f.grant(quota)
		labels := rapid.SampledFrom([]string{"", "one", "two", "unknown"})
		var pods []*consumed
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			var p *consumed
			i := -1
			if len(pods) > 0 {
				i = rapid.IntRange(0, len(pods)-1).Draw(t, "pod")
				p = pods[i]
			}
			steps := []string{"create", "create", "create", "relabel", "move", "evict", "delete", "grow"}
			switch step := rapid.SampledFrom(steps).Draw(t, "step"); {
			case step == "create":
				p = of.create(t, labels.Draw(t, "user"), rapid.SampledFrom([]int64{1, 500, 1000}).Draw(t, "cpu"))
				pods = append(pods, p)
			case step == "grow":
				quota["one"] += 500
				f.grant(maps.Clone(quota))
			case p == nil:
			case step == "relabel":
				p.pod = p.pod.DeepCopy()
				p.pod.Labels["liqo.io/creator-user"] = labels.Draw(t, "user")
			case step == "delete":
				p.deleted(f)
				pods = append(pods[:i], pods[i+1:]...)
				continue
			case p.at == "":
			case step == "evict":
				p.evicted(t, f)
			case step == "move":
				p.moves(f)
			}
			if p != nil {
				if at, _ := f.consume(p.pod); at != "" {
					p.at = at
				}
			}
			sum := int64(0)
			for _, p := range pods {
				if p.at != "" {
					sum += p.milli
				}
			}
			require.LessOrEqual(t, sum, quota["one"]+quota["two"])
		}
	})
}

func BenchmarkWakeWithinGrants(f *testing.B) {
	known := manyBeyond(10_000)
	for name, milli := range map[string]int64{
		"nothing fits": 999, "one of all that would fit": 1999, "as many as are tried at once": 1 << 40,
	} {
		f.Run(name, func(f *testing.B) {
			for f.Loop() {
				known.grant(users{"one": milli})
				known.retryWithinGrants()
				for _, p := range known.pods {
					if !p.queued.AwaitsGrant() {
						p.queued.AwaitGrant()
					}
				}
			}
		})
	}
	f.Run("nothing has changed", func(f *testing.B) {
		known.grant(users{"one": 999})
		known.retryWithinGrants()
		for f.Loop() {
			known.retryWithinGrants()
		}
	})
}

func BenchmarkDecideBeyondTheGrant(f *testing.B) {
	known := manyBeyond(10_000)
	pod := (&placement.Criteria{}).Pod(ofUser("one", "pod-1", "1"), ofConsumer)
	for f.Loop() {
		known.Assume(pod, nil)
	}
}

// A pod that waits for an earlier one of its name is counted where that one was, although it was assigned nowhere.
func TestAPodThatWaitsForAnEarlierOneHasNoPartOfItsOwn(t *testing.T) {
	waiting := func() (*Federation, *corev1.Pod) {
		f := withProviders("q")
		f.grant(users{"one": 1000})
		pod := ofUser("one", "a", "1")
		f.ObserveAccount(pod, placement.AccountOf(pod, ofConsumer))
		f.ObserveAssigned(pod, placed("q1"))
		return f, pod
	}
	f, pod := waiting()
	f.fits(t, pod, "it is not counted twice")

	f, pod = waiting()
	f.ObserveGone(name(pod), "")
	require.Empty(t, f.KeptForSuccessor(name(pod)), "nothing is kept for the next one")

	f, pod = waiting()
	f.ObserveLeft(pod, placed("q1"))
	f.fits(t, ofUser("one", "other", "1"), "it is as new as others are")

	f = withProviders("q")
	f.grant(users{"one": 1000})
	pod = ofUser("one", "a", "1")
	f.fits(t, pod)
	f.gone("a")
	next := remade(pod)
	f.ObserveAssigned(next, placed("q1"))
	f.ObserveLeft(next, placed("q1"))
	f.isBeyond(t, ofUser("one", "other", "1m"), "a successor keeps the part of its predecessor")
	f.fits(t, next)
}
