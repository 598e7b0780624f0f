package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// oneProvider is a core that knows provider q with one slice q1 of two CPUs.
func oneProvider() *core {
	c := newCore(&Config{})
	c.providers["q"] = &providerBelief{tracker: kpi.NewTracker(v1alpha1.KPIs{}, time.Minute), enabled: true}
	c.homeOf["q1"] = "q"
	c.state.SetProvider(scheduler.Provider{
		ID: "q", Enabled: true, Ready: true, Namespaces: sets.New("ns"),
		Slices: []scheduler.Slice{{VirtualNode: "q1", Ready: true, Granted: scheduler.Resources{corev1.ResourceCPU: 2000}}},
	})
	return c
}

func cpuPod(name string, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: assignedPod(corev1.PodPending, func(p *corev1.Pod) { p.Name, p.UID = name, types.UID(name) }).ObjectMeta,
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

func (c *core) decideOn(pod *corev1.Pod) string {
	var d scheduler.Decision
	c.decide(noon, (&placement.Criteria{}).Pod(pod, &corev1.Namespace{}), nil, &d)
	return d.VirtualNode
}

func TestDecisionsReserveAtOnce(t *testing.T) {
	c := oneProvider()
	first, second, third := cpuPod("first", "1500m"), cpuPod("second", "1"), cpuPod("third", "500m")
	require.Equal(t, "q1", c.decideOn(first))
	assumed, doubted := c.isAssumed(first.UID)
	require.True(t, assumed)
	require.False(t, doubted)
	require.Empty(t, c.decideOn(second), "the API has not confirmed the first one, but its room is taken")
	require.Equal(t, "q1", c.decideOn(third))
	require.Equal(t, []types.NamespacedName{nameOf(second)}, c.takeWaiting())

	c.doubt(first.UID)
	_, doubted = c.isAssumed(first.UID)
	require.True(t, doubted)
	require.Empty(t, c.decideOn(second), "what may have been written keeps its room")

	c.undecide(first.UID)
	assumed, doubted = c.isAssumed(first.UID)
	require.False(t, assumed || doubted)
	require.Equal(t, "q1", c.decideOn(second), "what could not be written takes no room")
	require.Empty(t, c.takeWaiting())
}

func TestTheAPIConfirmsAndReleases(t *testing.T) {
	c := oneProvider()
	pod := cpuPod("pod", "2")
	require.Equal(t, "q1", c.decideOn(pod))
	c.assigned(pod, "q1")
	isAssumed, _ := c.isAssumed(pod.UID)
	require.False(t, isAssumed)
	c.assigned(pod, "q1")
	assigned, waiting := c.counts()
	require.Equal(t, 1, assigned, "seen twice, counted once")
	require.Zero(t, waiting)

	require.False(t, c.released(nameOf(pod), "another pod of that name"))
	require.True(t, c.released(nameOf(pod), pod.UID))
	require.False(t, c.released(nameOf(pod), ""), "only once")
	require.Equal(t, "q1", c.decideOn(cpuPod("next", "2")))
}

// TestAPodThatCameAgainTakesItsOwnRoomOnly: the deletion of a pod and the creation of the next one of its name may reach
// the broker as one.
func TestAPodThatCameAgainTakesItsOwnRoomOnly(t *testing.T) {
	c := oneProvider()
	first, again := cpuPod("db-0", "2"), cpuPod("db-0", "2")
	again.UID = "again"
	require.Equal(t, "q1", c.decideOn(first))
	require.Equal(t, "q1", c.decideOn(again), "the first one's room is free again")
	assigned, _ := c.counts()
	require.Equal(t, 1, assigned)
	require.Len(t, c.assumed, 1)
}

// TestAPodOnItsWayKeepsItsRefusals, or it would go back to the provider that it comes from.
func TestAPodOnItsWayKeepsItsRefusals(t *testing.T) {
	c := oneProvider()
	pod := cpuPod("pod", "1")
	require.Equal(t, "q1", c.decideOn(pod))
	c.assigned(pod, "q1")
	c.movedAway(pod, "q1", noon)
	c.refuse(pod, "q1", noon.Add(time.Minute), false)
	c.assigned(pod, "q1")
	require.False(t, c.leftFor(pod.UID, "q1"))
	c.hasLeft(pod, "q1")
	require.True(t, c.leftFor(pod.UID, "q1"))
	c.assigned(pod, "q1")
	require.False(t, c.leftFor(pod.UID, "q1"), "it has come back")
	c.hasLeft(pod, "q1")
	require.Empty(t, c.decideOn(pod))
	require.Equal(t, "q1", c.decideOn(cpuPod("other", "2")), "it takes no room there any more")
}

func TestAProviderIsRememberedForAVirtualNodeThatIsGone(t *testing.T) {
	b := &Broker{core: newCore(&Config{})}
	named := func(names ...string) (list []offloadingv1beta1.VirtualNode) {
		for _, name := range names {
			list = append(list, offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		return list
	}
	var gone []string
	forget := func(name string) { gone = append(gone, name) }
	b.core.providers["q"] = &providerBelief{remoteNamespaces: map[string]string{"ns": "ns-broker"}}
	b.core.rehouseLocked("q", named("q1", "q2"), forget)
	b.core.rehouseLocked("q", named("q2"), forget)
	require.Equal(t, []string{"q1"}, gone)
	require.Equal(t, "q", b.core.formerHome["q1"])

	b.core.remember("q0", "q")
	b.core.remember("q1", "another")
	b.core.remember("q2", "another")
	require.Equal(t, map[string]string{"q0": "q", "q1": "q"}, b.core.formerHome,
		"what a pod says counts only of VirtualNodes that nobody knows any more")

	remote, known := b.remoteNamespace("q2", "elsewhere")
	require.True(t, known)
	require.Empty(t, remote)
	_, known = b.remoteNamespace("nobody", "ns")
	require.False(t, known, "what is not known is not gone")
	b.core.providers["q"].remoteNamespaces = nil
	_, known = b.remoteNamespace("q2", "ns")
	require.False(t, known)
}

func TestARefusalIsRememberedAndCorrectsTheCapacity(t *testing.T) {
	c := oneProvider()
	pod, other := cpuPod("pod", "1500m"), cpuPod("other", "1")
	require.Equal(t, "q1", c.decideOn(pod))
	c.undecide(pod.UID)
	c.refuse(pod, "q1", noon.Add(time.Minute), true)
	require.Empty(t, c.decideOn(pod))
	require.Empty(t, c.decideOn(other), "what the provider refused to the one, it does not have for the other")
	require.Equal(t, "q1", c.decideOn(cpuPod("small", "500m")))

	require.False(t, c.refusalsOver(noon.Add(59*time.Second)))
	require.True(t, c.refusalsOver(noon.Add(time.Minute)))
	require.Equal(t, "q1", c.decideOn(pod))
	rate, known := c.providers["q"].tracker.FailureRate()
	require.True(t, known)
	require.InDelta(t, 1, rate, 0)
}

func TestAProviderIsLostAfterTwoProbesInARow(t *testing.T) {
	c := oneProvider()
	up := func(at time.Duration) observation {
		return observation{at: noon.Add(at), up: true, kubelets: map[string]bool{"q1": true}}
	}
	down := func(at time.Duration) observation {
		return observation{at: noon.Add(at), problem: "timeout", kubelets: map[string]bool{"q1": true}}
	}
	require.True(t, c.observe("q", up(0)), "the first look says a lot")
	require.False(t, c.observe("q", up(time.Second)))
	c.observe("q", down(2*time.Second))
	require.Zero(t, c.situationOf("q1").lost, "once may be an accident")
	require.True(t, c.observe("q", down(3*time.Second)))
	require.Equal(t, noon.Add(2*time.Second), c.situationOf("q1").lost, "since the first probe that failed")

	moved := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
	require.Equal(t, "q", c.movedAway(moved, "q1", noon), "what was moved away unseen may still run there")
	require.Empty(t, c.movedAway(moved, "q1", noon), "which is told once")
	require.Empty(t, c.leftUnseen("q1"))
	require.True(t, c.providers["q"].unclean)
	require.True(t, c.observe("q", up(4*time.Second)))
	require.Zero(t, c.situationOf("q1").lost)
	require.False(t, c.observe("nobody", up(0)))
}

// TestAnOutageGoesOnOverARestart: a new leader counts an outage from its beginning, but moves nothing before it has seen
// for itself that the provider is still gone.
func TestAnOutageGoesOnOverARestart(t *testing.T) {
	for name, back := range map[string]bool{"still gone": false, "back meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			b := &Broker{core: newCore(&Config{}), metrics: newMetrics(), cfg: Config{Times: Times{ProbeInterval: time.Second}}}
			pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
			pc.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ProviderReachable, Status: metav1.ConditionFalse, Reason: reasonNoAnswer,
				LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
			}, {Type: v1alpha1.ProviderClean, Status: metav1.ConditionTrue}}
			vn := offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: "q1"}}
			b.adopt(pc, []offloadingv1beta1.VirtualNode{vn})
			require.True(t, b.core.providers["q"].unclean, "the last leader may have moved pods away without a word")
			require.Equal(t, situation{known: true}, b.core.situationOf("q1"))

			b.core.observe("q", observation{at: noon, up: back})
			if back {
				require.Zero(t, b.core.situationOf("q1").lost)
			} else {
				require.Equal(t, noon.Add(-time.Hour), b.core.situationOf("q1").lost)
			}
		})
	}
}

// TestASuspicionEndsForEachProviderByItself: while nobody can be reached, nothing is known of anybody. The first that
// answers says nothing of the others, which are asked a moment later.
func TestASuspicionEndsForEachProviderByItself(t *testing.T) {
	c := newCore(&Config{Times: Times{SuspicionWindow: time.Minute}})
	for id, virtualNode := range map[string]string{"p": "p1", "q": "q1"} {
		c.providers[id] = &providerBelief{tracker: kpi.NewTracker(v1alpha1.KPIs{}, time.Minute), enabled: true}
		c.homeOf[virtualNode] = id
	}
	probe := func(id string, after time.Duration, up bool) {
		c.observe(id, observation{began: noon.Add(after), at: noon.Add(after), up: up})
	}
	for _, after := range []time.Duration{0, 5 * time.Second, 10 * time.Minute} {
		probe("p", after, false)
		probe("q", after+time.Second, false)
	}
	require.True(t, c.suspects())
	require.True(t, c.situationOf("q1").suspended)

	probe("p", 10*time.Minute+3*time.Second, true)
	require.False(t, c.suspects())
	require.True(t, c.situationOf("q1").suspended, "q was not asked since")
	began, ended := noon.Add(10*time.Minute+2*time.Second), noon.Add(10*time.Minute+5*time.Second)
	c.observe("q", observation{began: began, at: ended})
	require.True(t, c.situationOf("q1").suspended, "it was asked while nobody could be reached")
	probe("q", 10*time.Minute+6*time.Second, false)
	s := c.situationOf("q1")
	require.False(t, s.suspended)
	require.Equal(t, noon.Add(time.Second), s.lost)
	require.Equal(t, noon.Add(10*time.Minute+3*time.Second), s.believed, "the time before does not count")
	probe("q", 10*time.Minute+12*time.Second, true)
	require.Equal(t, situation{known: true}, c.situationOf("q1"))
}

func TestAPodStartsOnce(t *testing.T) {
	c := oneProvider()
	pod := cpuPod("pod", "1")
	c.assigned(pod, "q1")
	c.podStarted(pod, 2*time.Second)
	c.podStarted(pod, 2*time.Hour)
	p50, _, known := c.providers["q"].tracker.PodStart()
	require.True(t, known)
	require.Equal(t, 2*time.Second, p50)
}
