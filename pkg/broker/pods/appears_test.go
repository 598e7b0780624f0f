package pods

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote/remotetest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// has has the broker know a provider that can be reached, with a VirtualNode of 64 CPUs and the namespace ns.
func (c *Controller) has(virtualNode string) {
	at := placed(virtualNode)
	c.State.SetProvider(at.Provider, state.ProviderSpec{
		Enabled: true, VirtualNodes: map[string]bool{virtualNode: false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
	}, &v1alpha1.ProviderClusterStatus{})
	c.State.ObserveProbe(at.Provider, state.Probe{Began: time.Now(), Ended: time.Now(), Answered: true})
	c.State.Schedule(scheduler.Provider{
		ID: at.Provider, Enabled: true, Ready: true, Namespaces: sets.New("ns"),
		Slices: []scheduler.Slice{{VirtualNode: virtualNode, Granted: resources.Amounts{corev1.ResourceCPU: 64000}}},
	})
}

// hasShadowPod connects the controller with provider q, which has nothing but a ShadowPod of the pod.
func (c *Controller) hasShadowPod() (*liqofake.Clientset, *kubefake.Clientset) {
	kube, liqo := kubefake.NewClientset(), liqofake.NewSimpleClientset(&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns-r", Name: "pod", UID: "shadow", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
		Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "uid"},
	}})
	c.Checker.Connections.Set(&remote.Connection{
		Provider: "q", VirtualNode: "q1", Kube: remotetest.Kube(kube), Probes: remotetest.Probes(kube), Liqo: remotetest.Liqo(liqo),
	})
	return liqo, kube
}

// leavesWith is a broker whose provider q has only the ShadowPod of a pod that leaves it, and is drained.
func leavesWith(t *testing.T, change ...func(*corev1.Pod)) (*Controller, *liqofake.Clientset, *kubefake.Clientset) {
	t.Helper()
	c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodPending, change...))
	c.drains()
	liqo, kube := c.hasShadowPod()
	c.reconciled(t, "pod")
	c.Checker.Check(t.Context(), placed("q1"))
	pod, _ := c.reconciled(t, "pod")
	require.Equal(t, "q1", pod.Annotations[v1alpha1.MovingFromAnnotation])
	c.released(t, &pod, v1alpha1.Assignment("q1", &pod))
	c.reconciled(t, "pod")
	return c, liqo, kube
}

// leaves reconciles a pod, and has its provider asked, until it has left or so much time is over. It returns the time.
func (c *Controller) leaves(t *testing.T, within time.Duration) (took time.Duration, left bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) <= within; time.Sleep(time.Second) {
		c.Checker.Check(t.Context(), placed("q1"))
		c.reconciled(t, "pod")
		if c.State.Pod("uid").Left == placed("q1") {
			return time.Since(began), true
		}
	}
	return within, false
}

// Liqo's controller at the provider has read the ShadowPod before it was deleted, and a webhook there holds the
// creation of its pod.
func TestAPodThatMayStillAppearIsWaitedFor(t *testing.T) {
	never := func(pod *corev1.Pod) { pod.Annotations[v1alpha1.FailoverAnnotation] = string(v1alpha1.FailoverNever) }
	const soon = 5 * time.Second
	for name, tc := range map[string]struct {
		change        []func(*corev1.Pod)
		least, atMost time.Duration
	}{
		"only a ShadowPod was seen": {nil, v1alpha1.PodCreationTimeout, v1alpha1.PodCreationTimeout + soon},
		"it never fails over":       {[]func(*corev1.Pod){never}, v1alpha1.PodCreationDeadline, v1alpha1.PodCreationDeadline + soon},
		"no ShadowPod was made of it": {
			[]func(*corev1.Pod){func(pod *corev1.Pod) {
				pod.Annotations[v1alpha1.NotForwardedAnnotation] = v1alpha1.Assignment("q1", pod)
			}}, 0, soon,
		},
		"that was at an earlier assignment": {
			[]func(*corev1.Pod){func(pod *corev1.Pod) { pod.Annotations[v1alpha1.NotForwardedAnnotation] = "q1/2026-01-01T00:00:00Z" }},
			v1alpha1.PodCreationTimeout, v1alpha1.PodCreationTimeout + soon,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, liqo, _ := leavesWith(t, tc.change...)
				_, left := c.leaves(t, time.Minute)
				require.False(t, left, "its ShadowPod is there")
				require.NoError(t, liqo.OffloadingV1beta1().ShadowPods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
				took, left := c.leaves(t, 5*time.Minute)
				require.True(t, left)
				require.GreaterOrEqual(t, took, tc.least)
				require.LessOrEqual(t, took, tc.atMost)
			})
		})
	}
	t.Run("it appears", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, liqo, kube := leavesWith(t)
			require.NoError(t, liqo.OffloadingV1beta1().ShadowPods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
			_, left := c.leaves(t, v1alpha1.PodCreationTimeout-5*time.Second)
			require.False(t, left)
			_, err := kube.CoreV1().Pods("ns-r").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns-r", Name: "pod", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
				Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "uid"},
			}}, metav1.CreateOptions{})
			require.NoError(t, err)
			_, left = c.leaves(t, 10*time.Minute)
			require.False(t, left, "it is there until the garbage collector has removed it")
			require.NoError(t, kube.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
			took, left := c.leaves(t, time.Minute)
			require.True(t, left)
			require.LessOrEqual(t, took, soon, "no other one can be made")
		})
	})
	t.Run("a new leader waits anew", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, liqo, _ := leavesWith(t)
			require.NoError(t, liqo.OffloadingV1beta1().ShadowPods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
			_, left := c.leaves(t, v1alpha1.PodCreationTimeout-5*time.Second)
			require.False(t, left)
			next := newControllerOf(t, c.Client, true, nil)
			next.drains()
			next.Checker.Connections.Set(c.Checker.Connections.Get(placed("q1")))
			took, left := next.leaves(t, 5*time.Minute)
			require.True(t, left)
			require.GreaterOrEqual(t, took, v1alpha1.PodCreationTimeout)
		})
	})
}

// A pod is evicted at its provider while it moves away, and a webhook there holds the creation of the next
// one of its ShadowPod.
func TestAPodThatIsMadeAgainWhileItLeavesIsWaitedFor(t *testing.T) {
	disrupted := func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	}
	for name, tc := range map[string]struct {
		then func(*corev1.Pod)
		// missed means that the pod is not reconciled with that answer.
		missed, waits bool
	}{
		"it runs until its ShadowPod is gone": {func(*corev1.Pod) {}, false, false},
		"it is being deleted":                 {func(pod *corev1.Pod) { deleting(pod); pod.Finalizers = []string{"x"} }, false, true},
		"it is evicted":                       {disrupted, false, true},
		"that is followed by its removal":     {disrupted, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodRunning, initContainer))
				c.has("q1")
				c.reconciled(t, "pod")
				c.drains()
				liqo, kube := c.hasShadowPod()
				pods := corev1.SchemeGroupVersion.WithResource("pods")
				there := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns-r", Name: "pod", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
					Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "uid"},
				}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
				require.NoError(t, kube.Tracker().Create(pods, there, "ns-r"))
				pod, _ := c.reconciled(t, "pod")
				for range 4 {
					c.Checker.Check(t.Context(), placed("q1"))
					pod, _ = c.reconciled(t, "pod")
				}
				require.Equal(t, "q1", pod.Annotations[v1alpha1.MovingFromAnnotation])
				c.released(t, &pod, v1alpha1.Assignment("q1", &pod))
				_, left := c.leaves(t, 10*time.Second)
				require.False(t, left)

				now := there.DeepCopy()
				tc.then(now)
				require.NoError(t, kube.Tracker().Update(pods, now, "ns-r"))
				if c.Checker.Check(t.Context(), placed("q1")); !tc.missed {
					_, left = c.leaves(t, 10*time.Second)
					require.False(t, left)
				}
				require.NoError(t, kube.Tracker().Delete(pods, "ns-r", "pod"))
				require.NoError(t, liqo.OffloadingV1beta1().ShadowPods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
				took, left := c.leaves(t, 5*time.Minute)
				require.True(t, left)
				require.Equal(t, tc.waits, took >= v1alpha1.PodCreationTimeout, took)
			})
		})
	}
}

// A finalizer of the provider keeps a pod whose containers have ended.
func TestAPodThatHasStoppedIsNotWaitedFor(t *testing.T) {
	terminated := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143}}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		leaves bool
	}{
		"it has stopped": {func(*corev1.Pod) {}, true},
		"a container runs": {func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}, false},
		"a sidecar runs":               {func(pod *corev1.Pod) { initContainer(pod) }, false},
		"its kubelet has not ended it": {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }, false},
		"no kubelet has written of it": {func(pod *corev1.Pod) { pod.Status.ContainerStatuses = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, there, _ := evicted(t)
			c.RefusalMemory = time.Hour
			c.has("r1")
			kept, err := there.CoreV1().Pods("ns-r").Get(t.Context(), "pod", metav1.GetOptions{})
			require.NoError(t, err)
			kept.Status.Phase, kept.DeletionTimestamp = corev1.PodFailed, &metav1.Time{Time: noon}
			kept.Finalizers = []string{"backup.example.com/x"}
			kept.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: terminated}}
			tc.change(kept)
			require.NoError(t, there.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), kept, "ns-r"))
			pod, _ := c.reconciled(t, "pod")
			c.released(t, &pod, v1alpha1.Assignment("q1", &pod))
			c.reconciled(t, "pod")
			c.Checker.Check(t.Context(), placed("q1"))
			got, _ := c.reconciled(t, "pod")
			if !tc.leaves {
				require.Empty(t, got.Labels[v1alpha1.VirtualNodeLabel])
				require.Equal(t, "q1", got.Annotations[v1alpha1.MovingFromAnnotation])
				return
			}
			require.Equal(t, "r1", got.Labels[v1alpha1.VirtualNodeLabel])
			require.Contains(t, got.Annotations[v1alpha1.TriesAnnotation], `"q1"`, "its name is not free there")
		})
	}
}

// An earlier version wrote no provider, or an administrator has removed it.
func TestAPodThatLeavesAProviderWithoutANameIsAskedAbout(t *testing.T) {
	unnamed := func(virtualNode string) *corev1.Pod {
		return assignedPod(corev1.PodPending, func(pod *corev1.Pod) {
			pod.Labels = nil
			pod.Annotations[v1alpha1.MovingFromAnnotation] = virtualNode
			pod.Annotations[v1alpha1.ReleasedAnnotation] = v1alpha1.Assignment(virtualNode, pod)
			pod.Annotations[v1alpha1.NotForwardedAnnotation] = v1alpha1.Assignment(virtualNode, pod)
		})
	}
	t.Run("one provider has such a VirtualNode", func(t *testing.T) {
		c := newController(t, true, interceptor.Funcs{}, nil, unnamed("q1"))
		c.has("q1")
		c.has("r1")
		c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning})
		got, _ := c.reconciled(t, "pod")
		require.Empty(t, got.Labels[v1alpha1.VirtualNodeLabel])
		require.Equal(t, "q", got.Annotations[v1alpha1.MovingFromProviderAnnotation])
	})
	t.Run("two providers have one", func(t *testing.T) {
		c := newController(t, true, interceptor.Funcs{}, nil, unnamed("q1"))
		c.sees("q", false, true, 0)
		c.sees("z", false, true, 0)
		c.connectTo("q")
		there := c.connectTo("z", "pod")
		check := func() corev1.Pod {
			c.reconciled(t, "pod")
			for _, provider := range []string{"q", "z"} {
				c.Checker.Check(t.Context(), scheduler.Place{Provider: provider, VirtualNode: "q1"})
			}
			pod, _ := c.reconciled(t, "pod")
			return pod
		}
		got := check()
		require.Empty(t, got.Labels[v1alpha1.VirtualNodeLabel], "one of them has it")
		require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
		got = check()
		require.NotEmpty(t, got.Labels[v1alpha1.VirtualNodeLabel])
	})
	t.Run("it is gone, and any provider may have had it", func(t *testing.T) {
		c := newController(t, true, interceptor.Funcs{}, nil, unnamed("gone"), virtualNodeOf("q", "q1"), virtualNodeOf("r", "r1"),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-r", Labels: map[string]string{
				"liqo.io/remote-cluster-id": "r", "liqo.io/tenant-namespace": "true",
			}}})
		c.has("q1")
		c.has("r1")
		c.connect("q1", corev1.PodStatus{})
		there := c.connect("r1", corev1.PodStatus{Phase: corev1.PodRunning})
		was, err := there.CoreV1().Pods("ns-r").Get(t.Context(), "pod", metav1.GetOptions{})
		require.NoError(t, err)
		was.Labels[forge.LiqoOriginClusterNodeName] = "gone"
		require.NoError(t, there.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), was, "ns-r"))
		for range 3 {
			got, _ := c.reconciled(t, "pod")
			require.Empty(t, got.Labels[v1alpha1.VirtualNodeLabel])
			c.Checker.Check(t.Context(), placed("q1"))
			c.Checker.Check(t.Context(), placed("r1"))
		}
		require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
		c.Checker.Check(t.Context(), placed("r1"))
		got, _ := c.reconciled(t, "pod")
		require.NotEmpty(t, got.Labels[v1alpha1.VirtualNodeLabel])
	})
}
