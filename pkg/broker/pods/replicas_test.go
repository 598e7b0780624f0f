package pods

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote/remotetest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// drainage is a cluster whose provider q is drained, while provider z takes pods. The virtual kubelets of both run, and
// the pods become Ready at z after startTime, except those for which broken is true.
type drainage struct {
	*Controller
	work workqueue.TypedRateLimitingInterface[reconcile.Request]
	// there are the pods of q.
	there *kubefake.Clientset
	// seen has the version at which each pod was reconciled last, due when it is to be reconciled again.
	seen map[types.NamespacedName]string
	due  map[types.NamespacedName]time.Time
	// broken pods never become Ready at z; reconciles counts all reconciliations.
	broken     func(name string) bool
	reconciles int
	// mostAway has, by the label app, the most pods that were not Ready at once.
	mostAway map[string]int
}

// startTime is how long a pod takes to become Ready at z.
const startTime = 15 * time.Second

// drain begins the drain of q, in a cluster of these pods.
func drain(t *testing.T, objects ...client.Object) *drainage {
	t.Helper()
	there := kubefake.NewClientset()
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok && pod.Labels[v1alpha1.VirtualNodeLabel] == "q1" {
			_, err := there.CoreV1().Pods("ns-r").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns-r", Name: pod.Name, Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
			}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
	}
	d := &drainage{there: there, broken: func(string) bool { return false }, mostAway: map[string]int{}}
	d.lead(t, newController(t, true, interceptor.Funcs{}, nil, objects...))
	return d
}

// lead has a leader begin that knows nothing but the state in the API.
func (d *drainage) lead(t *testing.T, c *Controller) {
	t.Helper()
	d.Controller = c
	d.work = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	require.NoError(t, c.Queue.Source().Start(t.Context(), d.work))
	t.Cleanup(d.work.ShutDown)
	d.seen, d.due = map[types.NamespacedName]string{}, map[types.NamespacedName]time.Time{}
	c.State.SetProvider("z", state.ProviderSpec{
		Enabled: true, VirtualNodes: map[string]bool{"z1": false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
	}, &v1alpha1.ProviderClusterStatus{})
	c.State.ObserveProbe("z", state.Probe{Began: time.Now(), Ended: time.Now(), Answered: true})
	for _, p := range []scheduler.Provider{{ID: "q", Draining: true}, {ID: "z"}} {
		p.Enabled, p.Ready, p.Namespaces = true, true, sets.New("ns")
		p.Slices = []scheduler.Slice{{VirtualNode: p.ID + "1", Granted: resources.Amounts{corev1.ResourceCPU: 1 << 40}}}
		c.State.Schedule(p)
	}
	c.drains()
	c.Checker.Connections.Set(&remote.Connection{
		Provider: "q", VirtualNode: "q1",
		Kube: remotetest.Kube(d.there), Probes: remotetest.Probes(d.there), Liqo: remotetest.Liqo(liqofake.NewSimpleClientset()),
	})
}

// restart has another leader begin.
func (d *drainage) restart(t *testing.T) {
	t.Helper()
	d.work.ShutDown()
	d.lead(t, newControllerOf(t, d.Client, true, nil))
}

func (d *drainage) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	require.NoError(t, d.Client.List(t.Context(), &list))
	return list.Items
}

// second simulates one second: the broker reconciles the changed, requeued and due pods, and the virtual kubelets and
// providers follow.
func (d *drainage) second(t *testing.T) {
	t.Helper()
	for range 3 {
		d.reconcileAll(t)
		d.Checker.Check(t.Context(), placed("q1"))
	}
	for _, pod := range d.pods(t) {
		from, released := pod.Annotations[v1alpha1.MovingFromAnnotation], pod.Annotations[v1alpha1.ReleasedAnnotation]
		if from == "q1" && released == "" {
			_ = d.there.CoreV1().Pods("ns-r").Delete(t.Context(), pod.Name, metav1.DeleteOptions{})
			d.released(t, &pod, v1alpha1.Assignment("q1", &pod))
		}
		started := time.Since(v1alpha1.AssignedAt(&pod)) >= startTime && !d.broken(pod.Name)
		if pod.Labels[v1alpha1.VirtualNodeLabel] == "z1" && started {
			d.becomes(t, pod.Name, corev1.ConditionTrue)
		}
	}
	time.Sleep(time.Second)
}

// becomes sets the condition Ready of a pod, unless it is so.
func (d *drainage) becomes(t *testing.T, name string, ready corev1.ConditionStatus) {
	t.Helper()
	var pod corev1.Pod
	require.NoError(t, d.Client.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: name}, &pod))
	if len(pod.Status.Conditions) == 1 && pod.Status.Conditions[0].Status == ready {
		return
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	require.NoError(t, d.Client.Status().Update(t.Context(), &pod))
}

func (d *drainage) reconcileAll(t *testing.T) {
	t.Helper()
	todo := sets.New[types.NamespacedName]()
	for d.work.Len() > 0 {
		request, _ := d.work.Get()
		d.work.Done(request)
		todo.Insert(request.NamespacedName)
	}
	for _, pod := range d.pods(t) {
		name := client.ObjectKeyFromObject(&pod)
		if at, waits := d.due[name]; d.seen[name] != pod.ResourceVersion || waits && !time.Now().Before(at) {
			todo.Insert(name)
		}
	}
	for _, name := range slices.SortedFunc(slices.Values(todo.UnsortedList()), func(a, b types.NamespacedName) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		var pod corev1.Pod
		if d.Client.Get(t.Context(), name, &pod) == nil {
			d.seen[name] = pod.ResourceVersion
		}
		delete(d.due, name)
		result, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: name})
		require.NoError(t, err)
		d.reconciles++
		if result.RequeueAfter > 0 {
			d.due[name] = time.Now().Add(result.RequeueAfter)
		}
	}
	d.count(t) // The broker makes no pod Ready, so those are the most.
}

// count counts the pods that are not Ready.
func (d *drainage) count(t *testing.T) {
	t.Helper()
	away := map[string]int{}
	for _, pod := range d.pods(t) {
		if len(pod.Status.Conditions) == 0 || pod.Status.Conditions[0].Status != corev1.ConditionTrue {
			away[pod.Labels["app"]]++
		}
	}
	for app, n := range away {
		d.mostAway[app] = max(d.mostAway[app], n)
	}
}

// at counts the pods that are assigned to a VirtualNode.
func (d *drainage) at(t *testing.T, virtualNode string) (count int) {
	t.Helper()
	for _, pod := range d.pods(t) {
		if pod.Labels[v1alpha1.VirtualNodeLabel] == virtualNode {
			count++
		}
	}
	return count
}

// emptied waits until no pod is at q, and returns how long that took.
func (d *drainage) emptied(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	for d.at(t, "q1") > 0 || d.at(t, "z1") < len(d.pods(t)) {
		require.Less(t, time.Since(began), time.Hour, "the drain does not end")
		d.second(t)
	}
	return time.Since(began)
}

// replicas are Ready pods of an application at q1, with the labels that a Deployment's pods have in the broker's
// cluster.
func replicas(app string, count int, change ...func(*corev1.Pod)) (pods []client.Object) {
	for i := range count {
		pod := assignedPod(corev1.PodRunning, readyPod)
		pod.Name = fmt.Sprintf("%s-%d", app, i)
		pod.UID = types.UID(pod.Name)
		pod.Labels["app"] = app
		pod.Labels["pod-template-hash"] = fmt.Sprintf("revision-%d", i%2)
		pod.Labels["apps.kubernetes.io/pod-index"] = fmt.Sprint(i)
		pod.Labels["offloading.liqo.io/nodename"] = fmt.Sprintf("slice-%d", i%3)
		for _, c := range change {
			c(pod)
		}
		pods = append(pods, pod)
	}
	return pods
}

func readyPod(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func TestADrainTakesAFewReplicasAtATime(t *testing.T) {
	for name, tc := range map[string]struct {
		replicas, away int
		atMost         time.Duration
	}{
		"a quarter of eight":      {8, 2, 3 * time.Minute},
		"one of three":            {3, 1, 3 * time.Minute},
		"the only one moves":      {1, 1, time.Minute},
		"a quarter, rounded down": {11, 2, 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := drain(t, replicas("web", tc.replicas)...)
				took := d.emptied(t)
				require.Equal(t, tc.away, d.mostAway["web"])
				require.Less(t, took, tc.atMost)
			})
		})
	}
}

func TestAReplicaThatIsNotReadyMovesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drain(t, replicas("web", 8, func(pod *corev1.Pod) {
			if pod.Name >= "web-5" {
				pod.Status.Conditions = nil // Three are more than may be away.
			}
		})...)
		for range 10 {
			d.second(t)
		}
		for _, pod := range d.pods(t) {
			require.Equal(t, pod.Name >= "web-5", pod.Labels[v1alpha1.VirtualNodeLabel] == "z1", pod.Name)
		}
		d.emptied(t)
		require.Equal(t, 3, d.mostAway["web"], "those that were not Ready")
	})
}

func TestApplicationsMoveSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drain(t, append(replicas("web", 4), replicas("db", 4)...)...)
		both := d.emptied(t)
		require.Equal(t, map[string]int{"web": 1, "db": 1}, d.mostAway)
		alone := drain(t, replicas("web", 4)...)
		require.Less(t, both, alone.emptied(t)+20*time.Second)
	})
}

func TestPodsWithoutLabelsAreNoReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drain(t, replicas("", 4, func(pod *corev1.Pod) { delete(pod.Labels, "app") })...)
		d.emptied(t)
		require.Equal(t, map[string]int{"": 4}, d.mostAway)
	})
}

// Those that nothing else limits are limited by --moves-at-once.
func TestSoManyPodsMoveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drain(t, replicas("", movesAtOnce+5, func(pod *corev1.Pod) { delete(pod.Labels, "app") })...)
		for range 3 {
			d.second(t)
		}
		require.Equal(t, map[string]int{"": movesAtOnce}, d.mostAway)
		d.emptied(t)
	})
}

func TestAPolicySetsHowManyReplicasMove(t *testing.T) {
	for limit, away := range map[string]int{"100%": 8, "50%": 4, "3": 3, "1%": 1} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parsed := intstr.Parse(limit)
				policy := &v1alpha1.PlacementPolicy{
					ObjectMeta: metav1.ObjectMeta{Name: "policy"}, Spec: v1alpha1.PlacementPolicySpec{MaxUnavailable: &parsed},
				}
				d := drain(t, append(replicas("web", 8), policy)...)
				d.emptied(t)
				require.Equal(t, away, d.mostAway["web"])
			})
		})
	}
}

// The leader ends before, while and after the first replicas move.
func TestANewLeaderGoesOnWithADrain(t *testing.T) {
	for _, after := range []int{0, 1, 2, 3, 5, 17, 18, 19, 20} {
		t.Run(fmt.Sprintf("after %d seconds", after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := drain(t, replicas("web", 8)...)
				for range after {
					d.second(t)
				}
				d.restart(t)
				d.emptied(t)
				require.Equal(t, 2, d.mostAway["web"])
			})
		})
	}
}

// The moved replicas start nowhere: the others stay, and it is shown why.
func TestADrainStopsWhileMovedReplicasAreNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drain(t, replicas("web", 8)...)
		d.broken = func(name string) bool { return name <= "web-1" }
		for range 10 {
			d.second(t)
		}
		before := d.reconciles
		for range 5 * 60 {
			d.second(t)
		}
		require.Equal(t, 6, d.at(t, "q1"))
		require.Less(t, d.reconciles-before, 6*5+20, "a pod that waits is not reconciled each second")
		known, _ := d.State.Provider("q")
		require.Equal(t, disruption.Waiting{
			Pods: 6, Example: "ns/web-2: maxUnavailable is 2 of 8 replicas, and 2 are unavailable, such as web-0",
		}, known.MovesWaiting)
		require.Equal(t, 6, d.State.Counts().Waiting)
		require.Contains(t, d.told(), "Normal MoveWaits Waiting to move away from q1: maxUnavailable is 2 of 8 replicas, and "+
			"2 are unavailable, such as web-0")

		// They become Ready after all.
		d.broken = func(string) bool { return false }
		require.Less(t, d.emptied(t), 2*time.Minute, "the pods that wait are requeued")
		require.Equal(t, 2, d.mostAway["web"])
		known, _ = d.State.Provider("q")
		require.Zero(t, known.MovesWaiting)
	})
}

// told returns the events.
func (d *drainage) told() (events []string) {
	recorder := d.Events.(*record.FakeRecorder)
	for len(recorder.Events) > 0 {
		events = append(events, <-recorder.Events)
	}
	return events
}

// A replica that will never be Ready is deleted, and another one may move at once.
func TestADeletedReplicaGivesItsTurnAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drain(t, replicas("web", 3)...)
		d.broken = func(name string) bool { return name == "web-0" }
		for range 30 {
			d.second(t)
		}
		require.Equal(t, 2, d.at(t, "q1"))
		pod := replicas("web", 1)[0]
		require.NoError(t, d.Client.Delete(t.Context(), pod))
		_, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		require.NoError(t, err)
		for range 10 {
			d.second(t)
		}
		require.Equal(t, 1, d.at(t, "q1"))
	})
}

// Liqo ends the pods of a VirtualNode that is being deleted, so none of them waits.
func TestThePodsOfARevokedSliceLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drain(t, replicas("web", 8)...)
		d.State.SetProvider("q", state.ProviderSpec{
			Enabled: true, VirtualNodes: map[string]bool{"q1": true}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
		}, &v1alpha1.ProviderClusterStatus{})
		d.emptied(t)
		require.Equal(t, 8, d.mostAway["web"])
	})
}

// When the drain ends, the pods that wait stay, and are no longer shown as waiting.
func TestPodsStopWaitingWhenADrainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drain(t, replicas("web", 8)...)
		for range 5 {
			d.second(t)
		}
		require.Equal(t, 6, d.State.Counts().Waiting)
		d.State.SetProvider("q", state.ProviderSpec{
			Enabled: true, VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
		}, &v1alpha1.ProviderClusterStatus{})
		clear(d.seen)
		for range 30 {
			d.second(t)
		}
		require.Equal(t, 6, d.at(t, "q1"))
		require.Zero(t, d.State.Counts().Waiting)
	})
}

// Workers ask for the replicas of one pod in parallel; the cache does not show the others' moves yet.
func TestWorkersDoNotTakeOneTurnTwice(t *testing.T) {
	objects := replicas("web", 40)
	c := newController(t, true, interceptor.Funcs{}, nil, objects...)
	var may atomic.Int32
	var workers sync.WaitGroup
	for _, object := range objects {
		workers.Go(func() {
			turn, err := c.turnOf(t.Context(), object.(*corev1.Pod), &placement.Rules{}, eviction.Drained)
			assert.NoError(t, err)
			if turn.May {
				may.Add(1)
			}
		})
	}
	workers.Wait()
	require.EqualValues(t, 10, may.Load())
	require.Equal(t, 30, c.State.Counts().Waiting)
}
