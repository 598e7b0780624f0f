package belief

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
	"github.com/capacitorset/liqo-broker-vk/pkg/belief/queue"
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
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
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ShadowPod", Name: name, UID: types.UID("shadow-" + name), Controller: ptr.To(true)}}
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
func (b *Belief) consume(of *corev1.Pod) (virtualNode, beyond string) {
	var d scheduler.Decision
	b.ObserveAccount(of, placement.AccountOf(of, ofConsumer))
	b.Decide((&placement.Criteria{}).Pod(of, ofConsumer), nil, &d)
	return d.VirtualNode, d.Beyond
}

// fits and isBeyond decide about a pod, and require that its consumer's grant has, or has not, enough for it.
func (b *Belief) fits(t require.TestingT, of *corev1.Pod, why ...any) {
	at, beyond := b.consume(of)
	require.Empty(t, beyond, why...)
	require.NotEmpty(t, at, why...)
}

func (b *Belief) isBeyond(t require.TestingT, of *corev1.Pod, why ...any) {
	at, beyond := b.consume(of)
	require.Empty(t, at, why...)
	require.NotEmpty(t, beyond, why...)
}

// users are grants of thousandths of a CPU by user.
type users map[string]int64

// grant grants consumer c1 these.
func (b *Belief) grant(to users) {
	g := &scheduler.Grant{ByCreator: map[string]resources.Amounts{}}
	for user, milli := range to {
		if g.Sum == nil {
			g.Sum = resources.Amounts{}
		}
		g.ByCreator[user] = resources.Amounts{corev1.ResourceCPU: milli}
		g.Sum.Add(g.ByCreator[user])
	}
	b.SetGrant("c1", g)
}

func assignedBefore(pod *corev1.Pod) *corev1.Pod {
	pod.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: "2026-03-01T12:00:00Z"}
	return pod
}

func TestNewPodsAreBoundedByTheGrantOfTheirUser(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("p", "q", "r")
		b.fits(t, ofUser("one", "before", "500m"), "no grant was read")
		b.grant(users{"one": 1500, "two": 500})
		b.fits(t, ofUser("one", "a", "1"), "a grant is used up to the last bit")
		_, beyond := b.consume(ofUser("one", "b", "500m"))
		require.Equal(t, "more than is left of the grant of user one of consumer c1: cpu: 500m requested, 1500m granted", beyond)
		require.Equal(t, 1, b.Counts().Unassigned)
		b.fits(t, ofUser("two", "c", "500m"), "another slice has its own grant")
		require.NotEmpty(t, b.try("local", 100, nil), "pods of this cluster have no grant")
		b.fits(t, newPod("administrator", "100m"), "Liqo did not make it of a ShadowPod")
		b.fits(t, assignedBefore(ofUser("one", "moved", "500m")), "a pod that moves is not bounded")

		// Denied, not decided, deleted, or never there.
		b.grant(users{"two": 500})
		b.isBeyond(t, ofUser("one", "b", "1m"))
		b.isBeyond(t, ofUser("three", "d", "0"), "it requests nothing but to be there")
		b.grant(nil)
		b.isBeyond(t, ofUser("two", "e", "1m"))
		b.SetGrant("c1", nil)
		b.fits(t, ofUser("one", "b", "1m"), "nothing is left of the consumer")
	})
}

// One of two slices is lowered, denied or deleted while its pods run. The pods of the other slice do not wait for them.
func TestASliceDoesNotBoundThePodsOfAnother(t *testing.T) {
	for name, after := range map[string]users{"lowered": {"one": 100, "two": 500}, "denied": {"two": 500}} {
		t.Run(name, func(t *testing.T) {
			b := withProviders("p", "q")
			b.grant(users{"one": 1000, "two": 500})
			b.fits(t, ofUser("one", "a", "1"))
			b.grant(after)
			b.fits(t, ofUser("two", "b", "500m"))
			b.isBeyond(t, ofUser("two", "c", "1m"))
		})
	}
}

// If Liqo enforces no quotas, no pod has the label of its user, or whatever a consumer writes.
func TestPodsWithoutAUserAreBoundedByAllGrants(t *testing.T) {
	b := withProviders("p", "q")
	b.grant(users{"one": 1000, "two": 1000})
	b.fits(t, ofUser("one", "a", "500m"))
	b.isBeyond(t, ofUser("", "b", "1501m"))
	b.fits(t, ofUser("", "b", "1200m"))
	b.isBeyond(t, ofUser("two", "c", "301m"), "both together have it once")
	b.isBeyond(t, ofUser("unknown", "d", "1m"))
	b.fits(t, ofUser("two", "c", "300m"))
}

func TestPodsBeyondTheGrantAreTriedWhenTheyFitIntoIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("p", "q")
		b.grant(users{"one": 1000})
		b.fits(t, ofUser("one", "a", "1"))
		for _, pod := range []string{"b", "c", "d"} {
			b.isBeyond(t, ofUser("one", pod, "1"))
			time.Sleep(time.Second)
		}
		require.Empty(t, b.woken(), "nothing changed")
		require.Empty(t, b.grown)
		b.Schedule(usable("r"))
		b.try("local", 100, nil)
		b.gone("local")
		require.Empty(t, b.woken(), "providers do not concern them")
		b.gone("a")
		b.ObserveNoSuccessor(name(newPod("a", "1")))
		require.Equal(t, []string{"b"}, b.woken(), "as many as fit, those that wait longest first")
		b.fits(t, ofUser("one", "b", "1"))
		require.Empty(t, b.woken())
		b.grant(users{"one": 2500})
		require.Equal(t, []string{"c"}, b.woken(), "the grant has grown")
		b.fits(t, ofUser("one", "c", "1"))
		require.Empty(t, b.woken())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"d"}, b.woken(), "at the latest after a minute")
		b.SetGrant("c1", nil)
		require.Equal(t, []string{"d"}, b.woken(), "no grant bounds it")
	})
}

// A new leader decides about all pods, also about those beyond a grant that is not there any more.
func TestAPodBeyondAGrantThatIsGoneIsTriedWhenThereIsANewOne(t *testing.T) {
	b := withProviders("q")
	b.grant(nil)
	b.isBeyond(t, ofUser("one", "a", "1"))
	require.Empty(t, b.woken())
	b.grant(users{"one": 1000})
	require.Equal(t, []string{"a"}, b.woken())
}

func TestNoMorePodsAreTriedAtOnceThanTheQueueWakes(t *testing.T) {
	b := manyBeyond(10_000)
	b.grant(users{"one": 1 << 40})
	names, more := b.Wake()
	require.Len(t, names, queue.MaxWoken)
	require.True(t, more)
}

// Many pods of one consumer wait for longer than one of another.
func TestConsumersAreTriedWithinTheirGrants(t *testing.T) {
	b := manyBeyond(queue.MaxWoken)
	b.SetGrant("c2", &scheduler.Grant{})
	var d scheduler.Decision
	pod := (&placement.Criteria{}).Pod(ofUser("one", "z", "1"), ofConsumer)
	pod.Account.Consumer = "c2"
	b.Decide(pod, nil, &d)
	require.NotEmpty(t, d.Beyond)
	b.SetGrant("c2", &scheduler.Grant{ByCreator: map[string]resources.Amounts{"one": {corev1.ResourceCPU: 1000}}})
	b.grant(users{"one": 1 << 40})
	require.NotContains(t, b.woken(), "z")
	require.Equal(t, []string{"z"}, b.woken())
	require.Empty(t, b.woken())
	require.Empty(t, b.grown)
}

// manyBeyond has so many pods that wait for the grant of consumer c1.
func manyBeyond(pods int) *Belief {
	b := withProviders("q")
	b.grant(nil)
	for i := range pods {
		b.consume(ofUser("one", "pod-"+strconv.Itoa(i), "1"))
	}
	b.Wake()
	return b
}

// Between two providers a pod keeps its part of the grant: it will have it again.
func TestAPodThatMovesKeepsItsPartOfTheGrant(t *testing.T) {
	for name, leave := range map[string]func(*Belief, *corev1.Pod){
		"this leader has seen it leave": func(b *Belief, pod *corev1.Pod) {
			b.ObserveAssigned(pod, placed("q1"))
			b.ObserveLeft(pod, placed("q1"))
		},
		"the leader before has": func(b *Belief, pod *corev1.Pod) {
			at, _ := b.consume(pod)
			require.Empty(t, at, "it waits for another provider")
		},
		"its assignment was refused": func(b *Belief, pod *corev1.Pod) {
			triedAt(pod, "q1", -time.Minute)
			b.fits(t, assignedBefore(pod))
			b.Unreserve(pod.UID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := withProviders("q")
				b.grant(users{"one": 1000})
				pod := ofUser("one", "pod", "1")
				triedAt(pod, "q1", time.Minute)
				pod.Annotations[v1alpha1.AssignedAtAnnotation] = "2026-03-01T12:00:00Z"
				b.ObserveAccount(pod, placement.AccountOf(pod, ofConsumer))
				leave(b, pod)
				b.isBeyond(t, ofUser("one", "other", "1"))
				require.Equal(t, "q1", b.try("local", 2000, nil), "it takes no room of a provider")
				b.gone("local")
				b.gone("pod")
				b.ObserveNoSuccessor(types.NamespacedName{Namespace: "ns", Name: "pod"})
				require.Contains(t, b.woken(), "other")
			})
		})
	}
}

// The assignment of a new pod was refused: it has no part of the grant.
func TestAnAssignmentOfANewPodThatIsNotWrittenTakesNothing(t *testing.T) {
	b := withProviders("q")
	b.grant(users{"one": 1000})
	b.fits(t, ofUser("one", "a", "1"))
	b.Unreserve("a")
	b.fits(t, ofUser("one", "b", "1"))
}

// A consumer may change the labels of its pods if Liqo enforces no quotas, and a pod may be counted before its namespace is known.
func TestTheAccountOfACountedPodStays(t *testing.T) {
	b := withProviders("p", "q")
	b.grant(users{"one": 1000, "two": 1000})
	pod := ofUser("one", "a", "1")
	b.ObserveAssigned(pod, placed("q1"))
	require.False(t, b.HasAccount(pod.UID))
	b.fits(t, ofUser("one", "b", "500m"), "it is not known whose it is")
	b.ObserveAccount(pod, placement.AccountOf(pod, ofConsumer))
	require.True(t, b.HasAccount(pod.UID))
	b.isBeyond(t, ofUser("one", "c", "1m"))
	relabelled := ofUser("two", "a", "1")
	b.ObserveAccount(relabelled, placement.AccountOf(relabelled, ofConsumer))
	b.ObserveAssigned(relabelled, placed("q1"))
	b.isBeyond(t, ofUser("one", "c", "1m"))
	b.ObserveLeft(assignedBefore(relabelled), placed("q1"))
	b.fits(t, relabelled)
	b.isBeyond(t, ofUser("one", "c", "1m"))
}

// A provider evicts a pod, and Liqo makes another one of the same ShadowPod, which its quota has admitted before the grant shrank.
func TestTheSuccessorOfAPodIsNotBounded(t *testing.T) {
	one, other := ofUser("one", "a", "1"), ofUser("one", "other", "1m")
	evicted := one.DeepCopy()
	evicted.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	succeeded := one.DeepCopy()
	succeeded.Status.Phase = corev1.PodSucceeded
	another := remade(one)
	another.OwnerReferences[0].UID = "another"
	for name, tc := range map[string]struct {
		meanwhile func(*Belief)
		next      *corev1.Pod
		// kept is whether a part is kept, fits whether the next pod has it.
		kept, fits bool
	}{
		"it is gone":                       {func(b *Belief) { b.gone("a") }, remade(one), true, true},
		"it was not seen that it is gone":  {func(*Belief) {}, remade(one), false, true},
		"its provider has evicted it":      {func(b *Belief) { b.ObserveEnded(evicted, placed("q1")); b.gone("a") }, remade(one), true, true},
		"it has succeeded":                 {func(b *Belief) { b.ObserveEnded(succeeded, placed("q1")); b.gone("a") }, remade(one), false, false},
		"it has ended, and is nowhere":     {func(b *Belief) { b.ObserveGone(name(one), one.UID) }, remade(one), false, false},
		"another ShadowPod has its name":   {func(b *Belief) { b.gone("a") }, another, true, false},
		"the ShadowPod is gone":            {func(b *Belief) { b.gone("a"); b.ObserveNoSuccessor(name(one)) }, remade(one), false, false},
		"it is made again after a minute":  {func(b *Belief) { b.gone("a"); time.Sleep(successorWithin); b.ExpireRefusals() }, remade(one), false, false},
		"an administrator makes the other": {func(b *Belief) { b.gone("a") }, newPod("a", "1"), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := withProviders("q")
				b.grant(users{"one": 1000})
				b.fits(t, one)
				tc.meanwhile(b)
				require.Equal(t, tc.kept, b.KeptForSuccessor(types.NamespacedName{Namespace: "ns", Name: "a"}) == "shadow-a")
				if tc.kept {
					b.isBeyond(t, other, "its part is kept")
				}
				b.grant(users{"one": 500})
				if !tc.fits {
					b.isBeyond(t, tc.next)
					return
				}
				b.fits(t, tc.next)
			})
		})
	}
}

// From the moment that the next pod is seen, and until it is decided about, nothing else has its part.
func TestThePartOfASuccessorIsItsOwnAtOnce(t *testing.T) {
	b := withProviders("q")
	b.grant(users{"one": 1000})
	pod := ofUser("one", "a", "1")
	b.fits(t, pod)
	b.gone("a")
	next := remade(pod)
	b.Earlier(next)
	require.Empty(t, b.predecessors)
	b.isBeyond(t, ofUser("one", "other", "1m"))
	b.fits(t, next)
	b.Unreserve(next.UID)
	b.isBeyond(t, ofUser("one", "other", "1m"), "its assignment was refused")
	b.gone("a")
	b.ObserveNoSuccessor(name(next))
	b.fits(t, ofUser("one", "other", "1"))
	b.gone("other")
	b.ObserveNoSuccessor(types.NamespacedName{Namespace: "ns", Name: "other"})
	_, requests := b.state.Counted(keptFor(name(next)))
	require.Nil(t, requests)
}

// Two decisions with expressions are made at once, and each leaves enough for one.
func TestDecisionsAtOnceDoNotExceedAGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := withProviders("q")
		b.grant(users{"one": 1000})
		filter, err := criteria.NewFilter("true")
		require.NoError(t, err)
		b.cfg.Clock = &during{call: func() { b.fits(t, ofUser("one", "other", "1")) }}
		pod := (&placement.Criteria{Filter: filter}).Pod(ofUser("one", "pod", "1"), ofConsumer)
		var d scheduler.Decision
		b.Decide(pod, nil, &d)
		require.Empty(t, d.VirtualNode)
		require.NotEmpty(t, d.Beyond)
	})
}

// large has one provider with room for everything.
func large() *Belief {
	b := none()
	b.SetProvider("q", ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}, &v1alpha1.ProviderClusterStatus{})
	q := usable("q")
	q.Namespaces = sets.New("ns", "other")
	q.Slices[0].Granted = resources.Amounts{corev1.ResourceCPU: 1 << 30}
	b.Schedule(q)
	return b
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
func (p *consumed) moves(b *Belief) {
	assignedBefore(p.pod)
	b.ObserveAssigned(p.pod, placed("q1"))
	b.ObserveLeft(p.pod, placed("q1"))
}

func (p *consumed) evicted(t *rapid.T, b *Belief) {
	if rapid.Bool().Draw(t, "its end is seen") {
		p.pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
		b.ObserveEnded(p.pod, placed("q1"))
	}
	b.ObserveGone(name(p.pod), "")
	p.pod = remade(p.pod)
}

func (p *consumed) deleted(b *Belief) {
	b.ObserveGone(name(p.pod), "")
	b.ObserveNoSuccessor(name(p.pod))
}

// An honest consumer creates ShadowPods within what Liqo's quotas admit: for each user, what its slice grants as it is, less what its
// ShadowPods request. Not one of them is beyond a grant, whatever becomes of them and of the slices, in whatever namespace.
func TestTheGrantRefusesNoPodThatItsSlicesAdmit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, of, quota, used := large(), consumers{}, users{"one": 1000, "two": 3000}, users{}
		b.grant(quota)
		var pods []*consumed
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			user := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "user")
			var p *consumed
			i := -1
			if len(pods) > 0 {
				i = rapid.IntRange(0, len(pods)-1).Draw(t, "pod")
				p = pods[i]
			}
			switch step := rapid.SampledFrom([]string{"create", "create", "move", "evict", "delete", "refuse", "slice", "lead"}).Draw(t, "step"); {
			case step == "create":
				if left := quota[user] - used[user]; left > 0 {
					p = of.create(t, user, rapid.Int64Range(1, left).Draw(t, "cpu"))
					used[user] += p.milli
					pods = append(pods, p)
					b.fits(t, p.pod)
				}
			case step == "slice":
				// Lowered, raised, denied, deleted and made again.
				if milli := rapid.SampledFrom([]int64{0, 500, 1000, 4000}).Draw(t, "granted"); milli > 0 {
					quota[user] = milli
				} else {
					delete(quota, user)
				}
				b.grant(maps.Clone(quota))
			case step == "lead":
				b = large()
				b.grant(maps.Clone(quota))
				for _, p := range pods {
					b.ObserveAccount(p.pod, placement.AccountOf(p.pod, ofConsumer))
					b.ObserveAssigned(assignedBefore(p.pod), placed("q1"))
				}
			case p == nil:
			case step == "delete":
				p.deleted(b)
				used[p.user] -= p.milli
				pods = append(pods[:i], pods[i+1:]...)
			case step == "evict":
				p.evicted(t, b)
				b.fits(t, p.pod)
			case step == "move":
				p.moves(b)
				b.fits(t, p.pod)
			case step == "refuse":
				p.moves(b)
				b.fits(t, p.pod)
				b.Unreserve(p.pod.UID)
				b.fits(t, p.pod)
			}
		}
	})
}

// Whatever labels a consumer writes, and changes, if Liqo enforces no quotas: all that it has assigned fits into its grants.
func TestNoLabelsHaveMoreThanTheGrants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, of, quota := large(), consumers{}, users{"one": 1000, "two": 1000}
		b.grant(quota)
		labels := rapid.SampledFrom([]string{"", "one", "two", "unknown"})
		var pods []*consumed
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			var p *consumed
			i := -1
			if len(pods) > 0 {
				i = rapid.IntRange(0, len(pods)-1).Draw(t, "pod")
				p = pods[i]
			}
			switch step := rapid.SampledFrom([]string{"create", "create", "create", "relabel", "move", "evict", "delete", "grow"}).Draw(t, "step"); {
			case step == "create":
				p = of.create(t, labels.Draw(t, "user"), rapid.SampledFrom([]int64{1, 500, 1000}).Draw(t, "cpu"))
				pods = append(pods, p)
			case step == "grow":
				quota["one"] += 500
				b.grant(maps.Clone(quota))
			case p == nil:
			case step == "relabel":
				p.pod = p.pod.DeepCopy()
				p.pod.Labels["liqo.io/creator-user"] = labels.Draw(t, "user")
			case step == "delete":
				p.deleted(b)
				pods = append(pods[:i], pods[i+1:]...)
				continue
			case p.at == "":
			case step == "evict":
				p.evicted(t, b)
			case step == "move":
				p.moves(b)
			}
			if p != nil {
				if at, _ := b.consume(p.pod); at != "" {
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

func BenchmarkWakeWithinGrants(b *testing.B) {
	known := manyBeyond(10_000)
	for name, milli := range map[string]int64{"nothing fits": 999, "one of all that would fit": 1999, "as many as are tried at once": 1 << 40} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				known.grant(users{"one": milli})
				known.retryWithinGrants()
				for _, p := range known.pods {
					if !p.waits.AwaitsGrant() {
						p.waits.AwaitGrant()
					}
				}
			}
		})
	}
	b.Run("nothing has changed", func(b *testing.B) {
		known.grant(users{"one": 999})
		known.retryWithinGrants()
		for b.Loop() {
			known.retryWithinGrants()
		}
	})
}

func BenchmarkDecideBeyondTheGrant(b *testing.B) {
	known := manyBeyond(10_000)
	pod := (&placement.Criteria{}).Pod(ofUser("one", "pod-1", "1"), ofConsumer)
	var d scheduler.Decision
	for b.Loop() {
		known.Decide(pod, nil, &d)
	}
}

// A pod that waits for an earlier one of its name is counted where that one was, although it was assigned nowhere.
func TestAPodThatWaitsForAnEarlierOneHasNoPartOfItsOwn(t *testing.T) {
	waiting := func() (*Belief, *corev1.Pod) {
		b := withProviders("q")
		b.grant(users{"one": 1000})
		pod := ofUser("one", "a", "1")
		b.ObserveAccount(pod, placement.AccountOf(pod, ofConsumer))
		b.ObserveAssigned(pod, placed("q1"))
		return b, pod
	}
	b, pod := waiting()
	b.fits(t, pod, "it is not counted twice")

	b, pod = waiting()
	b.ObserveGone(name(pod), "")
	require.Empty(t, b.KeptForSuccessor(name(pod)), "nothing is kept for the next one")

	b, pod = waiting()
	b.ObserveLeft(pod, placed("q1"))
	b.fits(t, ofUser("one", "other", "1"), "it is as new as others are")

	b = withProviders("q")
	b.grant(users{"one": 1000})
	pod = ofUser("one", "a", "1")
	b.fits(t, pod)
	b.gone("a")
	next := remade(pod)
	b.ObserveAssigned(next, placed("q1"))
	b.ObserveLeft(next, placed("q1"))
	b.isBeyond(t, ofUser("one", "other", "1m"), "a successor keeps the part of its predecessor")
	b.fits(t, next)
}
