package pods

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podstatus"
)

// successor is the pod that a controller makes in place of one that is gone.
func successor(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "next", Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: cpus("1")}, Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// forced returns a broker whose pod, which runs at q, was force-deleted, and the clientset of q.
func forced(t *testing.T, change ...func(*corev1.Pod)) (*Controller, *kubefake.Clientset) {
	t.Helper()
	pod := assignedPod(corev1.PodRunning, change...)
	pod.Spec.Containers = cpus("1")
	c := newController(t, true, interceptor.Funcs{}, nil, pod)
	c.ProbeInterval = 5 * time.Second
	c.has("q1")
	there := c.connect("q1", pod.Status)
	c.reconciled(t, "pod")
	c.has("r1")
	require.NoError(t, c.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	return c, there
}

func (c *Controller) gone(t *testing.T) {
	t.Helper()
	_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "pod"}})
	require.NoError(t, err)
}

// placedWithin has a pod reconciled, and q asked, until it is assigned or so much time is over.
func (c *Controller) placedWithin(t *testing.T, within time.Duration) string {
	t.Helper()
	for began := time.Now(); time.Since(began) <= within; time.Sleep(time.Second) {
		pod, _ := c.reconciled(t, "pod")
		if at := pod.Labels[v1alpha1.VirtualNodeLabel]; at != "" {
			return at
		}
		c.Checker.Check(t.Context(), placed("q1"))
	}
	return ""
}

// The pod of a StatefulSet is deleted by force, and runs on at its provider, whose virtual kubelet is down or whose
// kubelet ends it slowly.
func TestTheSuccessorOfAPodThatWasDeletedByForceWaitsForIt(t *testing.T) {
	for name, seen := range map[string]bool{"the broker sees that it is gone": true, "it sees the successor next": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, there := forced(t)
				if seen {
					c.gone(t)
				}
				require.NoError(t, c.Client.Create(t.Context(), successor()))
				require.Empty(t, c.placedWithin(t, 10*time.Minute), "q runs one of its name")
				pod, _ := c.reconciled(t, "pod")
				require.Equal(t, "q1", pod.Annotations[v1alpha1.MovingFromAnnotation], "the next leader knows it, too")
				require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
				require.NotEmpty(t, c.placedWithin(t, 10*time.Second))
				pod, _ = c.reconciled(t, "pod")
				require.NotContains(t, pod.Annotations, v1alpha1.MovingFromAnnotation)
			})
		})
	}
}

// Liqo's controller at the provider has made another pod of the ShadowPod before it wrote the end of the evicted one
// there, and the virtual kubelet cannot delete the ShadowPod yet, because the provider throttles it.
func TestTheSuccessorOfAPodThatWasEvictedAtItsProviderWaitsForWhatIsMadeOfItsShadowPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, there := forced(t, func(pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodFailed
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
			}}
		})
		c.gone(t)
		require.NoError(t, c.Client.Create(t.Context(), successor()))
		require.Empty(t, c.placedWithin(t, time.Minute), "q runs one of its name")
		require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
		require.NotEmpty(t, c.placedWithin(t, 10*time.Second))
	})
}

// A webhook for pods at the provider holds the creation of a pod that is deleted meanwhile: its virtual kubelet has
// removed the ShadowPod, and has no status to report.
func TestTheSuccessorOfAPodThatItsProviderHadNotMadeWaitsUntilItCannotBeMade(t *testing.T) {
	for name, forwarded := range map[string]bool{"it was forwarded": true, "it was not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, there := forced(t, deleting, func(pod *corev1.Pod) {
					pod.Status.Phase, pod.Finalizers = corev1.PodFailed, []string{"x"}
					if !forwarded {
						pod.Annotations[v1alpha1.NotForwardedAnnotation] = v1alpha1.Assignment("q1", pod)
					}
				})
				var pod corev1.Pod
				require.NoError(t, c.Client.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "pod"}, &pod))
				pod.Finalizers = nil
				require.NoError(t, c.Client.Update(t.Context(), &pod))
				c.gone(t)
				require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
				require.NoError(t, c.Client.Create(t.Context(), successor()))
				require.Equal(t, forwarded, c.placedWithin(t, v1alpha1.PodCreationTimeout-2*time.Second) == "")
				require.NotEmpty(t, c.placedWithin(t, 10*time.Second))
			})
		})
	}
}

// Liqo's controller at a provider makes a pod that was evicted or deleted there again, and a webhook for pods holds the
// creation. The pod is deleted here meanwhile, and its virtual kubelet finds only the ShadowPod.
func TestTheSuccessorOfAPodThatItsProviderMakesAgainWaitsUntilItCannotBeMade(t *testing.T) {
	evicted := func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
		})
	}
	ended := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }
	running := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}
	}
	unknown := func(pod *corev1.Pod) {
		running(pod)
		pod.Status = *podstatus.Unknown(&pod.Status)
	}
	for name, tc := range map[string]struct {
		changes []func(*corev1.Pod)
		waits   bool
	}{
		"it was evicted there":                   {[]func(*corev1.Pod){evicted}, true},
		"it was evicted here":                    {[]func(*corev1.Pod){evicted, deleting}, false},
		"its virtual kubelet found no pod there": {[]func(*corev1.Pod){deleting, unknown}, true},
		"its eviction there is seen at its end":  {[]func(*corev1.Pod){ended, evicted}, true},
		"it was not, and was force-deleted":      {nil, false},
		"the garbage collector of pods has ended it": {[]func(*corev1.Pod){ended, running, func(pod *corev1.Pod) {
			evicted(pod)
			pod.Status.Conditions[len(pod.Status.Conditions)-1].Reason = "DeletionByPodGC"
		}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, there := forced(t, append(tc.changes, func(pod *corev1.Pod) {
					if pod.DeletionTimestamp != nil {
						pod.Finalizers = []string{"x"}
					}
				})...)
				var pod corev1.Pod
				if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "pod"}, &pod); err == nil {
					pod.Finalizers = nil
					require.NoError(t, c.Client.Update(t.Context(), &pod))
				}
				c.gone(t)
				require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
				require.NoError(t, c.Client.Create(t.Context(), successor()))
				require.Equal(t, tc.waits, c.placedWithin(t, v1alpha1.PodCreationTimeout-2*time.Second) == "")
				require.NotEmpty(t, c.placedWithin(t, 2*time.Minute))
			})
		})
	}
}

// A pod that is being deleted here is evicted at its provider.
func TestTheSuccessorOfAPodThatIsEvictedWhileItIsDeletedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := func(pod *corev1.Pod) { pod.Finalizers, pod.Spec.Containers = []string{"x"}, cpus("1") }
		c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodRunning, initContainer, deleting, kept))
		c.has("q1")
		there := c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning})
		pod, _ := c.reconciled(t, "pod")
		pod.Status.Phase = corev1.PodFailed
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		})
		require.NoError(t, c.Client.Status().Update(t.Context(), &pod))
		pod, _ = c.reconciled(t, "pod")
		pod.Finalizers = nil
		require.NoError(t, c.Client.Update(t.Context(), &pod))
		c.gone(t)
		require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
		require.NoError(t, c.Client.Create(t.Context(), successor()))
		require.Empty(t, c.placedWithin(t, v1alpha1.PodCreationTimeout-2*time.Second))
		require.NotEmpty(t, c.placedWithin(t, 2*time.Minute))
	})
}

// A pod is force-deleted, and its successor created, while no broker leads and the peering with its provider is removed.
func TestANewLeaderWaitsForNamespacesThatAreBeingRemoved(t *testing.T) {
	peered := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-z", Name: "z1"}}
	peered.Spec.ClusterID = "z"
	for name, tc := range map[string]struct {
		never   bool
		objects []client.Object
		waits   bool
	}{
		"it may fail over": {false, nil, true},
		"it never does":    {true, nil, true},
		"the peering stays, with a cluster that is no provider of the broker": {true, []client.Object{peered}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never := tc.never
				pod := successor(func(pod *corev1.Pod) {
					pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
					if never {
						pod.Annotations[v1alpha1.FailoverAnnotation] = string(v1alpha1.FailoverNever)
					}
				})
				objects := append(append(unpeered(), tc.objects...), pod)
				c := newController(t, true, interceptor.Funcs{}, nil, objects[1:]...)
				c.Policies.Defaults.FailoverAfter, c.ProbeInterval = 20*time.Second, time.Second
				c.leadsSince(t, time.Now())
				c.has("q1")
				there := c.connect("q1", corev1.PodStatus{})
				require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
				if !tc.waits {
					require.NotEmpty(t, c.placedWithin(t, 10*time.Second))
					return
				}
				_, result := c.reconciled(t, "pod")
				require.LessOrEqual(t, result.RequeueAfter, leavingRecheck, "it may end at any time")
				require.Empty(t, c.placedWithin(t, removalTime))
				require.Equal(t, never, c.placedWithin(t, time.Minute) == "")
			})
		})
	}
}

// The first pod is forwarded, and deleted by force before the broker's cache shows its assignment.
func TestTheSuccessorOfAPodThatWasJustAssignedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, true, interceptor.Funcs{}, nil, successor(func(pod *corev1.Pod) { pod.UID = "first" }))
		c.ProbeInterval = 5 * time.Second
		c.has("q1")
		there := c.connect("q1", corev1.PodStatus{})
		require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
		first, _ := c.reconciled(t, "pod")
		require.NotEmpty(t, first.Labels[v1alpha1.VirtualNodeLabel])
		require.NoError(t, c.Client.Delete(t.Context(), &first, client.GracePeriodSeconds(0)))
		require.NoError(t, c.Client.Create(t.Context(), successor()))
		require.Empty(t, c.placedWithin(t, v1alpha1.PodCreationTimeout-2*time.Second))
		require.NotEmpty(t, c.placedWithin(t, 2*time.Minute))
	})
}

func TestASuccessorIsAssignedAtOnceIfNothingRuns(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"the provider has nothing any more": func(*corev1.Pod) {},
		"it was shown to have ended":        func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, there := forced(t, change)
				c.gone(t)
				require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
				require.NoError(t, c.Client.Create(t.Context(), successor()))
				require.NotEmpty(t, c.placedWithin(t, 2*time.Second))
				_, known := c.State.Earlier(successor())
				require.False(t, known)
			})
		})
	}
}

// The garbage collector of pods makes a pod Failed before it deletes it, even if its containers still run.
func TestAPodThatTheGarbageCollectorOfPodsDeletedMayRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := forced(t, func(pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodFailed
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC",
			}}
		})
		c.gone(t)
		require.NoError(t, c.Client.Create(t.Context(), successor()))
		require.Empty(t, c.placedWithin(t, time.Minute))
	})
}

func TestASuccessorThatIsDeletedEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := forced(t)
		c.gone(t)
		next := successor(func(pod *corev1.Pod) { pod.Finalizers = []string{"x"} })
		require.NoError(t, c.Client.Create(t.Context(), next))
		require.Empty(t, c.placedWithin(t, time.Minute))
		require.NoError(t, c.Client.Delete(t.Context(), next))
		c.reconciled(t, "pod")
		var now corev1.Pod
		require.NoError(t, c.Client.Get(t.Context(), client.ObjectKeyFromObject(next), &now))
		now.Finalizers = nil
		require.NoError(t, client.IgnoreNotFound(c.Client.Update(t.Context(), &now)))
		require.True(t, kerrors.IsNotFound(c.Client.Get(t.Context(), client.ObjectKeyFromObject(next), &now)))
		c.gone(t)
		third := successor(func(pod *corev1.Pod) { pod.UID = "third" })
		require.NoError(t, c.Client.Create(t.Context(), third))
		require.Empty(t, c.placedWithin(t, time.Minute), "the first one runs still")
	})
}

// The provider of the earlier pod is lost.
func TestASuccessorFailsOverFromALostProvider(t *testing.T) {
	for name, never := range map[string]bool{"it may fail over": false, "it never does": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, there := forced(t)
				c.Policies.Defaults.FailoverAfter = time.Minute
				c.gone(t)
				there.PrependReactor("*", "*", noAnswer)
				for range 2 {
					c.State.ObserveProbe("q", state.Probe{Began: time.Now(), Ended: time.Now()})
				}
				require.NoError(t, c.Client.Create(t.Context(), successor(func(pod *corev1.Pod) {
					if never {
						pod.Annotations[v1alpha1.FailoverAnnotation] = string(v1alpha1.FailoverNever)
					}
				})))
				require.Empty(t, c.placedWithin(t, 50*time.Second))
				at := c.placedWithin(t, 10*time.Minute)
				if never {
					require.Empty(t, at)
					return
				}
				require.NotEmpty(t, at)
			})
		})
	}
}

// While no broker led, Liqo's nodefailure-controller has force-deleted a pod, and its successor was created. The new
// leader sees the successor first, and a moment later the provider that the previous leader had.
func TestANewLeaderAsksProvidersThatItDoesNotKnowYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := successor(func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute)) })
		c := newController(t, false, interceptor.Funcs{}, nil, pod, &v1alpha1.ProviderCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "q"},
			Status:     v1alpha1.ProviderClusterStatus{VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: "q1"}}},
		})
		c.leadsSince(t, time.Now())
		require.Empty(t, c.placedWithin(t, 5*time.Second))
		_, judged := c.State.Earlier(pod)
		require.False(t, judged)
		require.False(t, c.State.Pod(pod.UID).NameFree, "q may run one of its name")
		c.has("q1")
		c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning})
		require.Empty(t, c.placedWithin(t, time.Minute))
	})
}

func TestANewLeaderAsksAboutPodsThatNoLeaderHasSeen(t *testing.T) {
	created := func(ago time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-ago)) }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		asks   bool
	}{
		"created before": {created(time.Minute), true},
		"created since":  {created(-time.Minute), false},
		"a leader has judged it": {func(pod *corev1.Pod) {
			created(time.Minute)(pod)
			pod.Status.Conditions = []corev1.PodCondition{{Type: v1alpha1.ConditionAssigned, Status: corev1.ConditionFalse}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newController(t, true, interceptor.Funcs{}, nil, successor(tc.change))
				c.has("q1")
				there := c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning})
				at := c.placedWithin(t, time.Minute)
				if !tc.asks {
					require.NotEmpty(t, at)
					return
				}
				require.Empty(t, at)
				atOnce := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
				require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", atOnce))
				require.NotEmpty(t, c.placedWithin(t, time.Minute))
			})
		})
	}
}
