package termination

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote/remotetest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// provider is one with the VirtualNode q1, which has forwarded pods to the namespace ns-r.
type provider struct {
	kube *kubefake.Clientset
	liqo *liqofake.Clientset
	// lists is how often it was asked for a list.
	lists atomic.Int64
	// answer, if set, is called before each list; its error is the answer instead of the list.
	answer func() error
}

func newProvider(t *testing.T, names ...string) (*provider, *Checker) {
	t.Helper()
	p := &provider{kube: kubefake.NewClientset(), liqo: liqofake.NewSimpleClientset()}
	for i, name := range names {
		meta := metav1.ObjectMeta{
			Namespace: "ns-r", Name: name, UID: types.UID(fmt.Sprint(i)), Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
		}
		require.NoError(t, p.kube.Tracker().Add(&corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: corev1.PodRunning}}))
		require.NoError(t, p.liqo.Tracker().Add(&offloadingv1beta1.ShadowPod{ObjectMeta: meta}))
	}
	count := func(clienttesting.Action) (bool, runtime.Object, error) {
		p.lists.Add(1)
		if p.answer != nil {
			if err := p.answer(); err != nil {
				return true, nil, err
			}
		}
		return false, nil, nil
	}
	p.kube.PrependReactor("list", "*", count)
	p.liqo.PrependReactor("list", "*", count)
	connections := remote.NewConnections(nil, nil, "")
	connections.Set(&remote.Connection{
		Provider: "q", VirtualNode: "q1",
		Kube: remotetest.Kube(p.kube), Probes: remotetest.Probes(p.kube), Liqo: remotetest.Liqo(p.liqo),
	})
	return p, NewChecker(CheckerConfig{
		Log: testr.New(t), Connections: connections, Queue: &requeue.Queue{}, Timeout: time.Minute,
		Connect: func(context.Context, scheduler.Place) *remote.Connection { return nil },
	})
}

func (p *provider) remove(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, p.kube.CoreV1().Pods("ns-r").Delete(t.Context(), name, metav1.DeleteOptions{}))
	require.NoError(t, p.liqo.OffloadingV1beta1().ShadowPods("ns-r").Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// placed is a VirtualNode of provider q.
func placed(virtualNode string) scheduler.Place {
	return scheduler.Place{Provider: "q", VirtualNode: virtualNode}
}

func podNamed(name string) Pod {
	return Pod{
		Name: types.NamespacedName{Namespace: "ns", Name: name}, UID: "uid", VirtualNode: "q1", RemoteNamespace: "ns-r", Via: placed("q1"),
	}
}

func TestAPodIsGoneWhenAListBegunLaterSaysSo(t *testing.T) {
	p, c := newProvider(t, "pod")
	require.False(t, c.Ask(podNamed("pod")).Known)
	require.Zero(t, p.lists.Load(), "it is asked by workers")
	require.Positive(t, c.Check(t.Context(), placed("q1")))
	answer := c.Ask(podNamed("pod"))
	require.True(t, answer.Known)
	require.True(t, answer.Present)
	require.Equal(t, corev1.PodRunning, answer.Status.Phase)
	p.remove(t, "pod")
	require.True(t, c.Ask(podNamed("pod")).Present, "nobody has asked again")
	require.Positive(t, c.Check(t.Context(), placed("q1")))
	gone := c.Ask(podNamed("pod"))
	require.True(t, gone.Known)
	require.False(t, gone.Present)
	require.Nil(t, gone.Status)
	require.Equal(t, answer.Asked, gone.Asked)
	require.True(t, gone.Since.After(answer.Since))

	// A creation that was on the way.
	settled := podNamed("pod")
	settled.Settled = true
	require.False(t, c.Ask(settled).Known, "it is asked anew")
	require.Equal(t, answer.Asked, c.Ask(settled).Asked)
	meta := metav1.ObjectMeta{Namespace: "ns-r", Name: "pod", UID: "1", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"}}
	require.NoError(t, p.liqo.Tracker().Add(&offloadingv1beta1.ShadowPod{ObjectMeta: meta}))
	require.Positive(t, c.Check(t.Context(), placed("q1")))
	require.True(t, c.Ask(settled).Present)
	require.NoError(t, p.liqo.OffloadingV1beta1().ShadowPods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))

	c.Forget(podNamed("pod").Name)
	require.Zero(t, c.Check(t.Context(), placed("q1")), "nothing to ask")
	require.False(t, c.Ask(podNamed("pod")).Known, "it may be there again")
	again := podNamed("pod")
	require.Positive(t, c.Check(t.Context(), placed("q1")))
	again.UID = "another"
	require.False(t, c.Ask(again).Known, "another pod of that name")
}

// An earlier pod of the name was deleted while no virtual kubelet was running. It has completed, and the new one has
// not.
func TestAnEarlierPodOfTheNameIsNoAnswer(t *testing.T) {
	p, c := newProvider(t)
	meta := metav1.ObjectMeta{
		Namespace: "ns-r", Name: "pod", UID: "0", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
		Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "earlier"},
	}
	require.NoError(t, p.kube.Tracker().Add(&corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}))
	require.NoError(t, p.liqo.Tracker().Add(&offloadingv1beta1.ShadowPod{ObjectMeta: meta}))
	c.Ask(podNamed("pod"))
	c.Check(t.Context(), placed("q1"))
	answer := c.Ask(podNamed("pod"))
	require.True(t, answer.Known)
	require.False(t, answer.Present)
	require.Nil(t, answer.Status)

	// Its own ShadowPod is there, and the pod of the earlier one is ending.
	meta.Annotations = map[string]string{v1alpha1.PodUIDAnnotation: "uid"}
	require.NoError(t, p.liqo.Tracker().Update(
		offloadingv1beta1.ShadowPodGroupVersionResource, &offloadingv1beta1.ShadowPod{ObjectMeta: meta}, "ns-r"))
	c.Check(t.Context(), placed("q1"))
	answer = c.Ask(podNamed("pod"))
	require.True(t, answer.Present)
	require.Nil(t, answer.Status)
}

func TestAllPodsOfANamespaceAreOneQuestion(t *testing.T) {
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprint("pod-", i))
	}
	p, c := newProvider(t, names...)
	for _, name := range names {
		c.Ask(podNamed(name))
	}
	require.Positive(t, c.Check(t.Context(), placed("q1")))
	require.EqualValues(t, 2, p.lists.Load(), "ShadowPods and pods")
	for _, name := range names {
		require.True(t, c.Ask(podNamed(name)).Present)
	}
}

func TestWhatOthersForwardedDoesNotCount(t *testing.T) {
	p, c := newProvider(t)
	meta := metav1.ObjectMeta{Namespace: "ns-r", Name: "pod", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q2"}}
	require.NoError(t, p.kube.Tracker().Add(&corev1.Pod{ObjectMeta: meta}))
	require.NoError(t, p.liqo.Tracker().Add(&offloadingv1beta1.ShadowPod{ObjectMeta: meta}))
	c.Ask(podNamed("pod"))
	c.Check(t.Context(), placed("q1"))
	answer := c.Ask(podNamed("pod"))
	require.True(t, answer.Known)
	require.False(t, answer.Present)
}

// While one list runs, a pod is deleted and asked about: the answer of that list is not about it.
func TestAListThatBeganBeforeDoesNotCount(t *testing.T) {
	p, c := newProvider(t, "first")
	c.Ask(podNamed("first"))
	p.answer = func() error {
		c.Ask(podNamed("second"))
		return nil
	}
	c.Check(t.Context(), placed("q1"))
	require.True(t, c.Ask(podNamed("first")).Known)
	require.False(t, c.Ask(podNamed("second")).Known)
}

// A list that fails says nothing about whether the provider can be reached: only the pods that it was for wait.
func TestAPodWaitsForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newProvider(t, "pod")
		p.answer = func() error { return context.DeadlineExceeded }
		c.Ask(podNamed("pod"))
		for range 5 {
			require.Positive(t, c.Check(t.Context(), placed("q1")))
		}
		require.False(t, c.Ask(podNamed("pod")).Known)
		p.answer = nil
		c.Check(t.Context(), placed("q1"))
		require.True(t, c.Ask(podNamed("pod")).Present)
		c.Forget(podNamed("pod").Name)
		require.Zero(t, c.Check(t.Context(), placed("q1")))
	})
}

func TestARefusalIsAnAnswer(t *testing.T) {
	for name, refusal := range map[string]error{
		"forbidden": kerrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")),
		"too many":  kerrors.NewTooManyRequests("later", 1),
	} {
		p, c := newProvider(t, "pod")
		p.answer = func() error { return refusal }
		c.Ask(podNamed("pod"))
		for range 5 {
			require.Positive(t, c.Check(t.Context(), placed("q1")))
		}
		answer := c.Ask(podNamed("pod"))
		require.False(t, answer.Known, "but not that the pod is gone")
		require.Equal(t, name == "forbidden", answer.Refused())
	}
}

func TestTheShadowPodOfAnOrphanIsDeleted(t *testing.T) {
	p, c := newProvider(t, "orphan", "served")
	orphan := podNamed("orphan")
	orphan.Orphan = true
	c.Ask(orphan)
	c.Ask(podNamed("served"))
	c.Check(t.Context(), placed("q1"))
	left, err := p.liqo.OffloadingV1beta1().ShadowPods("ns-r").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, left.Items, 1)
	require.Equal(t, "served", left.Items[0].Name)
	require.True(t, c.Ask(orphan).Present, "its pod is there")
}

func TestTheShadowPodOfAnOrphanThatHasEndedIsDeletedOnceThatIsWritten(t *testing.T) {
	p, c := newProvider(t, "orphan")
	pod, err := p.kube.CoreV1().Pods("ns-r").Get(t.Context(), "orphan", metav1.GetOptions{})
	require.NoError(t, err)
	pod.Status.Phase, pod.Annotations = corev1.PodSucceeded, map[string]string{v1alpha1.PodUIDAnnotation: "uid"}
	require.NoError(t, p.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "ns-r"))
	left := func() int {
		shadows, err := p.liqo.OffloadingV1beta1().ShadowPods("ns-r").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(shadows.Items)
	}
	orphan := podNamed("orphan")
	orphan.Orphan = true
	c.Ask(orphan)
	c.Check(t.Context(), placed("q1"))
	require.True(t, c.Ask(orphan).Ended)
	require.Equal(t, 1, left())
	orphan.Ends = true
	c.Ask(orphan)
	c.Check(t.Context(), placed("q1"))
	require.Zero(t, left())
}

func TestListsHaveABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newProvider(t, "pod")
		c.Ask(podNamed("pod"))
		require.Equal(t, firstInterval, c.Check(t.Context(), placed("q1")))
		require.Equal(t, 2*firstInterval, c.Check(t.Context(), placed("q1")))
		for range 10 {
			c.Check(t.Context(), placed("q1"))
		}
		require.Equal(t, lastInterval, c.Check(t.Context(), placed("q1")))
		c.Ask(podNamed("another"))
		require.Equal(t, firstInterval, c.Check(t.Context(), placed("q1")), "a pod that has just begun to leave")
	})
}

func TestAVirtualNodeWithoutAConnectionIsWaitedFor(t *testing.T) {
	_, c := newProvider(t)
	pod := podNamed("pod")
	pod.Via = placed("q2")
	c.Ask(pod)
	require.Positive(t, c.Check(t.Context(), placed("q2")))
	answer := c.Ask(pod)
	require.False(t, answer.Known)
	require.True(t, answer.Unasked())
}

// An answer from before a failed list may be old. A provider that does not answer a list is silent only if it answers
// nothing.
func TestAnAnswerDoesNotOutliveAListThatFails(t *testing.T) {
	for name, silent := range map[string]bool{"it is silent": true, "it answers a probe": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, c := newProvider(t, "pod")
				asked := time.Now()
				require.Equal(t, asked, c.Ask(podNamed("pod")).Since)
				time.Sleep(time.Minute)
				c.Check(t.Context(), placed("q1"))
				require.True(t, c.Ask(podNamed("pod")).Present)
				answered := time.Now()
				alive := answered
				p.answer = func() error { return context.DeadlineExceeded }
				if silent {
					p.kube.PrependReactor("get", "version", func(clienttesting.Action) (bool, runtime.Object, error) {
						return true, nil, context.DeadlineExceeded
					})
				}
				time.Sleep(time.Minute)
				if !silent {
					alive = time.Now()
				}
				c.Check(t.Context(), placed("q1"))
				none := c.Ask(podNamed("pod"))
				require.ErrorIs(t, none.Err, context.DeadlineExceeded)
				require.Equal(t, Answer{Asked: asked, Since: answered, Alive: alive, Err: none.Err}, none)
				p.answer = nil
				c.Check(t.Context(), placed("q1"))
				require.True(t, c.Ask(podNamed("pod")).Present)
			})
		})
	}
}

// Its lists fail, one namespace after the other: a failure in one keeps the others from being given up meanwhile.
func TestAProviderThatAnswersSomethingIsAliveForAllItsNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newProvider(t)
		p.answer = func() error { time.Sleep(time.Minute); return context.DeadlineExceeded }
		var asked []Pod
		for i := range 10 {
			pod := podNamed(fmt.Sprint("pod-", i))
			pod.RemoteNamespace = fmt.Sprint("ns-r-", i)
			asked = append(asked, pod)
			c.Ask(pod)
		}
		for range 5 {
			time.Sleep(c.Check(t.Context(), placed("q1")))
			for _, pod := range asked {
				require.Less(t, time.Since(c.Ask(pod).Alive), 10*time.Second)
			}
		}
	})
}

// A VirtualNode was created again under its name while the provider was asked about the ShadowPods of an earlier one.
func TestAShadowPodIsNotDeletedForAQuestionThatWasForgotten(t *testing.T) {
	p, c := newProvider(t, "orphan")
	orphan := podNamed("orphan")
	orphan.Orphan = true
	c.Ask(orphan)
	p.answer = func() error { c.Forget(orphan.Name); return nil }
	c.Check(t.Context(), placed("q1"))
	left, err := p.liqo.OffloadingV1beta1().ShadowPods("ns-r").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, left.Items, 1)
}

func TestAProviderIsConnectedWithAgain(t *testing.T) {
	_, c := newProvider(t, "pod")
	other := c.Connections.Get(placed("q1"))
	c.Connections.Remove(placed("q1"))
	var wanted []scheduler.Place
	c.Connect = func(_ context.Context, at scheduler.Place) *remote.Connection {
		wanted = append(wanted, at)
		return other
	}
	c.Ask(podNamed("pod"))
	c.Check(t.Context(), placed("q1"))
	require.True(t, c.Ask(podNamed("pod")).Present)
	require.Equal(t, []scheduler.Place{placed("q1")}, wanted)
}

// A Job's pod has completed, and its provider has removed it: only the ShadowPod, which no virtual kubelet reads any
// more, shows its end.
func TestTheEndOfAPodThatIsRemovedIsReadFromItsShadowPod(t *testing.T) {
	for name, tc := range map[string]struct {
		policy corev1.RestartPolicy
		phase  corev1.PodPhase
		ended  bool
	}{
		"it completed":                 {corev1.RestartPolicyNever, corev1.PodSucceeded, true},
		"its node was drained":         {corev1.RestartPolicyAlways, corev1.PodFailed, false},
		"no pod was made of it so far": {corev1.RestartPolicyNever, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := newProvider(t)
			shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns-r", Name: "pod", UID: "shadow", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
				Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "uid"},
			}}
			shadow.Spec.Pod.RestartPolicy, shadow.Status.Phase = tc.policy, tc.phase
			require.NoError(t, p.liqo.Tracker().Add(shadow))
			reads, away := 0, true
			p.liqo.PrependReactor("get", "shadowpods", func(clienttesting.Action) (bool, runtime.Object, error) {
				reads++
				return away, nil, errors.New("no answer")
			})
			orphan := podNamed("pod")
			orphan.Orphan = true
			has := func() bool {
				c.Ask(orphan)
				c.Check(t.Context(), placed("q1"))
				_, err := p.liqo.Tracker().Get(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods"), "ns-r", "pod")
				return err == nil
			}
			require.True(t, has(), "it is not deleted before it was read")
			away = false
			require.Equal(t, tc.ended, has())
			answer := c.Ask(orphan)
			require.Equal(t, tc.ended, answer.Ended)
			if tc.ended {
				require.Equal(t, tc.phase, answer.Status.Phase)
			}
			has()
			require.LessOrEqual(t, reads, 3)
		})
	}
}

func TestAPodThatAFinalizerKeepsHasStopped(t *testing.T) {
	p, c := newProvider(t)
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-r", Name: "pod", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
			DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}, Finalizers: []string{"x"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
		}}},
	}
	require.NoError(t, p.kube.Tracker().Add(kept))
	stopped := func() bool {
		c.Ask(podNamed("pod"))
		c.Check(t.Context(), placed("q1"))
		answer := c.Ask(podNamed("pod"))
		require.True(t, answer.Present)
		return answer.Stopped
	}
	require.True(t, stopped())
	require.NoError(t, p.liqo.Tracker().Add(&offloadingv1beta1.ShadowPod{ObjectMeta: withUID(kept.ObjectMeta)}))
	require.False(t, stopped(), "another one can be made of its ShadowPod")
}

// Liqo's controller makes a pod of each ShadowPod that has none, also of one whose pod was evicted there.
func TestAPodThatItsProviderMayBeMakingAgain(t *testing.T) {
	p, c := newProvider(t, "pod")
	changes := &requeue.Queue{}
	c.Queue = changes
	asked := podNamed("pod")
	answer := func() Answer {
		t.Helper()
		c.Check(t.Context(), placed("q1"))
		answer := c.Ask(asked)
		require.True(t, answer.Known)
		return answer
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	shadowPods := offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods")
	become := func(change func(*corev1.Pod)) {
		t.Helper()
		pod, err := p.kube.CoreV1().Pods("ns-r").Get(t.Context(), "pod", metav1.GetOptions{})
		require.NoError(t, err)
		pod = pod.DeepCopy()
		change(pod)
		require.NoError(t, p.kube.Tracker().Update(pods, pod, "ns-r"))
	}
	c.Ask(asked)
	require.False(t, answer().Remaking, "it runs")

	become(func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	})
	require.True(t, answer().Remaking, "it was evicted")
	become(func(pod *corev1.Pod) { pod.Status.Conditions = nil })
	require.False(t, answer().Remaking, "that is another one")

	become(func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x"}
	})
	require.True(t, answer().Remaking, "it was deleted")
	p.remove(t, "pod")
	_ = p.kube.Tracker().Delete(pods, "ns-r", "pod") // Its finalizer has kept it.
	gone := answer()
	require.False(t, gone.Present)
	require.True(t, gone.Remaking, "a webhook holds the creation")
	asked.Waited = true
	require.True(t, c.Ask(asked).Remaking, "also for the next question")
	p.answer = func() error { return errors.New("down") }
	c.Check(t.Context(), placed("q1"))
	require.True(t, c.Ask(asked).Remaking, "also when there is no answer")
	p.answer = nil

	meta := metav1.ObjectMeta{
		Namespace: "ns-r", Name: "pod", UID: "0", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
		DeletionTimestamp: &metav1.Time{Time: time.Now()}, Finalizers: []string{"x"},
	}
	require.NoError(t, p.kube.Tracker().Create(pods, &corev1.Pod{ObjectMeta: meta}, "ns-r"))
	require.False(t, answer().Remaking, "no pod is made without a ShadowPod")
	meta.DeletionTimestamp, meta.Finalizers = nil, nil
	require.NoError(t, p.liqo.Tracker().Create(shadowPods, &offloadingv1beta1.ShadowPod{ObjectMeta: meta}, "ns-r"))
	require.NoError(t, p.kube.Tracker().Delete(pods, "ns-r", "pod"))
	require.True(t, answer().Remaking, "none was made yet")
}

func TestAnyPodOfANameIsAskedAbout(t *testing.T) {
	p, c := newProvider(t)
	require.NoError(t, p.kube.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns-r", Name: "pod", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
		Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "earlier"},
	}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}))
	answer := func(uid types.UID) Answer {
		asked := podNamed("pod")
		asked.UID = uid
		c.Ask(asked)
		c.Check(t.Context(), placed("q1"))
		return c.Ask(asked)
	}
	require.False(t, answer("uid").Present)
	any := answer("")
	require.True(t, any.Present)
	require.False(t, any.Ended, "its end is not that of the one that comes after it")
}

// withUID returns the metadata of another object of the name.
func withUID(meta metav1.ObjectMeta) metav1.ObjectMeta {
	meta.UID = "shadow"
	return meta
}
