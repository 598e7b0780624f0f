package pods

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote/remotetest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// connect gives the controller the clients of a VirtualNode, which has a pod of a status in the namespace ns-r.
func (c *Controller) connect(virtualNode string, status corev1.PodStatus) *kubefake.Clientset {
	meta := metav1.ObjectMeta{
		Namespace: "ns-r", Name: "pod", Labels: map[string]string{forge.LiqoOriginClusterNodeName: virtualNode},
		Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "uid"},
	}
	there := kubefake.NewClientset(&corev1.Pod{ObjectMeta: meta, Status: status})
	c.Checker.Connections.Set(&remote.Connection{
		Provider: placed(virtualNode).Provider, VirtualNode: virtualNode,
		Kube: remotetest.Kube(there), Probes: remotetest.Probes(there), Liqo: remotetest.Liqo(liqofake.NewSimpleClientset()),
	})
	return there
}

// drains has provider q be drained.
func (c *Controller) drains() {
	c.State.SetProvider("q", state.ProviderSpec{
		Enabled: true, Draining: true, VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
	}, &v1alpha1.ProviderClusterStatus{})
}

// The virtual kubelet is not running, so the end is not known here.
func TestAPodThatHasEndedAtItsProviderIsEndedHere(t *testing.T) {
	c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodRunning))
	c.drains()
	c.connect("q1", corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed"}},
	}}})
	pod, result := c.reconciled(t, "pod")
	require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel], "its provider is asked first")
	require.Equal(t, leavingRecheck, result.RequeueAfter)

	c.Checker.Check(t.Context(), placed("q1"))
	pod, _ = c.reconciled(t, "pod")
	require.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
	require.Equal(t, "Completed", pod.Status.ContainerStatuses[0].State.Terminated.Reason)
	require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
	pod, _ = c.reconciled(t, "pod")
	require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel], "it stays where it ended")
	require.Zero(t, c.Checker.Check(t.Context(), placed("q1")), "its provider is asked no more")
}

// evicted returns a controller that has begun to move a running pod, the provider that it leaves, and the pod.
func evicted(t *testing.T) (c *Controller, there *kubefake.Clientset, pod corev1.Pod) {
	t.Helper()
	c = newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodRunning))
	c.drains()
	there = c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning})
	c.reconciled(t, "pod")
	c.Checker.Check(t.Context(), placed("q1"))
	pod, _ = c.reconciled(t, "pod")
	return c, there, pod
}

// Its virtual kubelet, which reports that as well, may not be running.
func TestAPodThatEndsWhileItLeavesIsEndedHere(t *testing.T) {
	c, there, pod := evicted(t)
	require.Equal(t, "q1", pod.Annotations[v1alpha1.MovingFromAnnotation])
	c.reconciled(t, "pod")

	shows := func(phase corev1.PodPhase, deleted *metav1.Time) corev1.PodPhase {
		remote, err := there.CoreV1().Pods("ns-r").Get(t.Context(), "pod", metav1.GetOptions{})
		require.NoError(t, err)
		remote.Status.Phase, remote.DeletionTimestamp = phase, deleted
		require.NoError(t, there.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), remote, "ns-r"))
		c.Checker.Check(t.Context(), placed("q1"))
		pod, _ := c.reconciled(t, "pod")
		return pod.Status.Phase
	}
	require.Equal(t, corev1.PodPending, shows(corev1.PodFailed, &metav1.Time{Time: noon}), "its kubelet removes it")
	require.Equal(t, corev1.PodSucceeded, shows(corev1.PodSucceeded, nil))
	pod, _ = c.reconciled(t, "pod")
	require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel], "it does not run again")
	require.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
	require.Zero(t, c.Checker.Check(t.Context(), placed("q1")), "its provider is asked no more")
}

func TestARunningPodLeavesOnceItsProviderHasAnswered(t *testing.T) {
	c, there, pod := evicted(t)
	require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel])
	require.Equal(t, "q1", pod.Annotations[v1alpha1.MovingFromAnnotation])

	// Earlier answers of the provider no longer count.
	pod, _ = c.reconciled(t, "pod")
	require.NotEmpty(t, pod.Annotations[v1alpha1.MovingFromAnnotation])
	require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
	pod, _ = c.reconciled(t, "pod")
	require.NotEmpty(t, pod.Annotations[v1alpha1.MovingFromAnnotation])
	c.Checker.Check(t.Context(), placed("q1"))
	pod, _ = c.reconciled(t, "pod")
	require.False(t, c.State.Pod("uid").Left == placed("q1"), "its virtual kubelet may be creating its ShadowPod")
	c.released(t, &pod, "q1/"+pod.Annotations[v1alpha1.AssignedAtAnnotation])
	c.reconciled(t, "pod")
	require.False(t, c.State.Pod("uid").Left == placed("q1"), "it may have been created after the provider had none")
	_, err := there.CoreV1().Pods("ns-r").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns-r", Name: "pod", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	c.Checker.Check(t.Context(), placed("q1"))
	c.reconciled(t, "pod")
	require.False(t, c.State.Pod("uid").Left == placed("q1"))
	require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
	c.Checker.Check(t.Context(), placed("q1"))
	c.reconciled(t, "pod")
	require.True(t, c.State.Pod("uid").Left == placed("q1"))
}

// released has a virtual kubelet release a pod.
func (c *Controller) released(t *testing.T, pod *corev1.Pod, assignment string) {
	t.Helper()
	pod.Annotations[v1alpha1.ReleasedAnnotation] = assignment
	require.NoError(t, c.Client.Update(t.Context(), pod))
}

// A virtual kubelet that was killed releases no pod, and the release of an earlier assignment does not count.
func TestAPodThatIsNotReleasedWaitsForTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodRunning))
		c.drains()
		there := c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning})
		c.reconciled(t, "pod")
		time.Sleep(v1alpha1.CreationDeadline) // The time in which it is only asked whether it has ended does not count.
		c.Checker.Check(t.Context(), placed("q1"))
		pod, _ := c.reconciled(t, "pod")
		require.NotEmpty(t, pod.Annotations[v1alpha1.MovingFromAnnotation])
		c.released(t, &pod, "q1/2026-01-01T00:00:00Z")
		require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
		c.reconciled(t, "pod")
		c.Checker.Check(t.Context(), placed("q1"))
		for waited := time.Duration(0); waited < v1alpha1.CreationDeadline; {
			_, result := c.reconciled(t, "pod")
			require.False(t, c.State.Pod("uid").Left == placed("q1"), "after %s", waited)
			require.Positive(t, result.RequeueAfter)
			time.Sleep(result.RequeueAfter)
			waited += result.RequeueAfter
			c.Checker.Check(t.Context(), placed("q1"))
		}
		c.reconciled(t, "pod")
		require.False(t, c.State.Pod("uid").Left == placed("q1"), "it is asked once more")
		c.Checker.Check(t.Context(), placed("q1"))
		c.reconciled(t, "pod")
		require.True(t, c.State.Pod("uid").Left == placed("q1"))
	})
}

// The virtual kubelet forwards the pods of a burst one after the other.
func TestAPodIsNotMovedWhileItIsQueued(t *testing.T) {
	for name, tc := range map[string]struct {
		startsAt string        // The VirtualNode at which another pod starts.
		leads    time.Duration // How long the leader has led.
		there    []string      // Whose ShadowPods the provider has.
		stays    bool
	}{
		"no other pod starts":                      {"", time.Hour, nil, false},
		"another one has started":                  {"q1", time.Hour, nil, true},
		"its ShadowPod is there, and others start": {"q1", time.Hour, []string{"pod"}, false},
		"its ShadowPod is there, and none starts":  {"q2", time.Hour, []string{"pod"}, true},
		"one has started at another slice":         {"q2", time.Hour, nil, false},
		"the leader is new":                        {"", 0, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodPending, func(pod *corev1.Pod) {
				pod.Annotations[v1alpha1.AssignedAtAnnotation] = time.Now().Add(-90 * time.Second).Format(time.RFC3339Nano)
			}))
			c.Policies.Defaults.PendingTimeout = time.Minute
			c.State.SetProvider("q", state.ProviderSpec{
				Enabled: true, VirtualNodes: map[string]bool{"q1": false, "q2": false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
			}, &v1alpha1.ProviderClusterStatus{})
			liqo := liqofake.NewSimpleClientset()
			for _, name := range tc.there {
				require.NoError(t, liqo.Tracker().Add(&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns-r", Name: name, UID: "shadow", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
					Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "uid"},
				}}))
			}
			c.Checker.Connections.Set(&remote.Connection{
				Provider: "q", VirtualNode: "q1", Kube: remotetest.Kube(kubefake.NewClientset()), Liqo: remotetest.Liqo(liqo),
			})
			c.leadsSince(t, time.Now().Add(-tc.leads))
			for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning} {
				other := assignedPod(phase, func(pod *corev1.Pod) { pod.Name, pod.UID = "other", "other" })
				c.State.ObserveAssigned(other, scheduler.Place{Provider: "q", VirtualNode: tc.startsAt})
			}
			c.reconciled(t, "pod")
			c.Checker.Check(t.Context(), placed("q1"))
			pod, result := c.reconciled(t, "pod")
			require.Equal(t, tc.stays, pod.Labels[v1alpha1.VirtualNodeLabel] == "q1")
			if tc.stays {
				require.InDelta(t, time.Minute, result.RequeueAfter, float64(10*time.Second))
				require.Zero(t, c.Checker.Check(t.Context(), placed("q1")), "its provider is asked no more until then")
			}
		})
	}
}

func TestAPodThatRunsIsNotMovedBecauseItIsShownPending(t *testing.T) {
	for name, tc := range map[string]struct {
		there  corev1.PodStatus
		leaves bool
	}{
		"it runs":  {corev1.PodStatus{Phase: corev1.PodRunning}, false},
		"it waits": {corev1.PodStatus{Phase: corev1.PodPending}, true},
		"its init container has ended": {corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
		}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodPending))
			c.Policies.Defaults.PendingTimeout = time.Minute
			c.leadsSince(t, noon)
			c.drains()
			c.State.SetProvider("q", state.ProviderSpec{
				Enabled: true, VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
			}, &v1alpha1.ProviderClusterStatus{})
			c.connect("q1", tc.there)
			c.reconciled(t, "pod")
			c.Checker.Check(t.Context(), placed("q1"))
			pod, _ := c.reconciled(t, "pod")
			require.Equal(t, tc.leaves, pod.Labels[v1alpha1.VirtualNodeLabel] == "")
		})
	}
}

// Liqo's virtualnode-controller drops a VirtualNode as soon as it has requested that its namespaces be removed.
func TestAPodWaitsForTheNamespaceOfAVirtualNodeThatIsGone(t *testing.T) {
	moving := assignedPod(corev1.PodPending, leaves("z1"))
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-z", Labels: map[string]string{
		"liqo.io/remote-cluster-id": "z", "liqo.io/tenant-namespace": "true",
	}}}
	leftBehind := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo-tenant-z", Name: "z", Labels: map[string]string{"liqo.io/remote-cluster-id": "z"},
			Finalizers: []string{"crdreplicator.liqo.io/resource"}, DeletionTimestamp: ptr.To(metav1.NewTime(noon)),
		},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"ns": {RemoteNamespace: "ns-r", Phase: offloadingv1beta1.MappingTerminating},
		}},
	}
	t.Run("until it is gone", func(t *testing.T) {
		released := moving.DeepCopy()
		released.Annotations[v1alpha1.ReleasedAnnotation] = v1alpha1.Assignment("z1", released)
		c := newController(t, true, interceptor.Funcs{}, nil, released, tenant.DeepCopy(), leftBehind.DeepCopy())
		for range 3 {
			pod, _ := c.reconciled(t, "pod")
			require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel], "it may still run there")
		}
		var m offloadingv1beta1.NamespaceMap
		key := types.NamespacedName{Namespace: "liqo-tenant-z", Name: "z"}
		require.NoError(t, c.Client.Get(t.Context(), key, &m))
		m.Finalizers = nil
		require.NoError(t, c.Client.Update(t.Context(), &m))
		c.reconciled(t, "pod")
		pod, _ := c.reconciled(t, "pod")
		require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
	})
	t.Run("or the provider says so, which is asked as long as there is a connection", func(t *testing.T) {
		c := newController(t, true, interceptor.Funcs{}, nil, moving.DeepCopy(), tenant.DeepCopy(), leftBehind.DeepCopy())
		there := c.connect("z1", corev1.PodStatus{})
		released, _ := c.reconciled(t, "pod")
		c.released(t, &released, "z1/"+released.Annotations[v1alpha1.AssignedAtAnnotation])
		c.reconciled(t, "pod")
		c.Checker.Check(t.Context(), placed("z1"))
		pod, _ := c.reconciled(t, "pod")
		require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel])
		require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
		c.Checker.Check(t.Context(), placed("z1"))
		c.reconciled(t, "pod")
		pod, _ = c.reconciled(t, "pod")
		require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
	})
}

// A VirtualNode of a provider that is down is deleted, and the provider has another one, or none any more.
func TestAPodLeavesAProviderThatIsDownWithoutItsVirtualNode(t *testing.T) {
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-z", Labels: map[string]string{
		"liqo.io/remote-cluster-id": "z", "liqo.io/tenant-namespace": "true",
	}}}
	leftBehind := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-z", Name: "z", Labels: map[string]string{"liqo.io/remote-cluster-id": "z"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"ns": {RemoteNamespace: "ns-r", Phase: offloadingv1beta1.MappingTerminating},
		}},
	}
	ofZ := func(pod *corev1.Pod) {
		pod.Labels = map[string]string{v1alpha1.VirtualNodeLabel: "z1", v1alpha1.ProviderLabel: "z"}
	}
	for name, virtualNodes := range map[string][]string{"with another one": {"z2"}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{assignedPod(corev1.PodRunning, ofZ), tenant.DeepCopy(), leftBehind.DeepCopy()}
			for _, other := range virtualNodes {
				objects = append(objects, virtualNodeOf("z", other))
			}
			c := newController(t, true, interceptor.Funcs{}, nil, objects...)
			c.Policies.Defaults.FailoverAfter = time.Nanosecond
			c.connect("z1", corev1.PodStatus{}).PrependReactor("*", "*", noAnswer)
			if len(virtualNodes) > 0 {
				c.State.SetProvider("z", state.ProviderSpec{
					Enabled: true, VirtualNodes: map[string]bool{"z2": false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
				}, &v1alpha1.ProviderClusterStatus{})
				for range 2 {
					c.State.ObserveProbe("z", state.Probe{Began: time.Now(), Ended: time.Now()})
				}
			}
			for range 5 {
				c.reconciled(t, "pod")
				c.Checker.Check(t.Context(), placed("z1"))
			}
			pod, _ := c.reconciled(t, "pod")
			require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
		})
	}
}

// noAnswer is the reaction of a provider that is down.
func noAnswer(clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, errors.New("dial tcp: connection refused")
}

// forbidden is the reaction of a provider that has removed the rights in a namespace.
func forbidden(clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, kerrors.NewForbidden(corev1.Resource("pods"), "", nil)
}

// unpeered returns a pod that leaves the only VirtualNode of a provider, which is gone, and the objects that Liqo has
// left of its peering.
func unpeered(change ...func(*corev1.Pod)) []client.Object {
	moving := assignedPod(corev1.PodPending, append(change, left("z1"))...)
	return []client.Object{
		moving,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-z", Labels: map[string]string{
			"liqo.io/remote-cluster-id": "z", "liqo.io/tenant-namespace": "true",
		}}},
		&offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "liqo-tenant-z", Name: "z", Labels: map[string]string{"liqo.io/remote-cluster-id": "z"},
			},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"ns": {RemoteNamespace: "ns-r", Phase: offloadingv1beta1.MappingTerminating},
			}},
		},
	}
}

// A provider without a VirtualNode answers that it has the pod, and is switched off after that.
func TestAPodLeavesAProviderThatDoesNotAnswerAnyMore(t *testing.T) {
	deleted := func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.Finalizers = ptr.To(metav1.NewTime(noon)), []string{"test"}
	}
	never := func(pod *corev1.Pod) { pod.Annotations[v1alpha1.FailoverAnnotation] = string(v1alpha1.FailoverNever) }
	for name, tc := range map[string]struct {
		change []func(*corev1.Pod)
		// verb are the requests that the provider answers so.
		verb   string
		answer clienttesting.ReactionFunc
		// leaves means that the pod is assigned again, or ended, after FailoverAfter.
		leaves bool
	}{
		"one that fails over":                             {nil, "*", noAnswer, true},
		"one that never does waits":                       {[]func(*corev1.Pod){never}, "*", noAnswer, false},
		"one that is being deleted, although it does not": {[]func(*corev1.Pod){never, deleted}, "*", noAnswer, true},
		"only lists have no answer":                       {nil, "list", noAnswer, false},
		"it refuses":                                      {nil, "*", forbidden, false},
		"it refuses about one that is being deleted":      {[]func(*corev1.Pod){never, deleted}, "*", forbidden, true},
		"only lists have no answer, and it is deleted":    {[]func(*corev1.Pod){deleted}, "list", noAnswer, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newController(t, true, interceptor.Funcs{}, nil, unpeered(tc.change...)...)
				c.Policies.Defaults.FailoverAfter, c.ProbeInterval = time.Minute, 5*time.Second
				there := c.connect("z1", corev1.PodStatus{Phase: corev1.PodRunning})
				left := func() bool {
					var pod corev1.Pod
					name := types.NamespacedName{Namespace: "ns", Name: "pod"}
					result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: name})
					require.NoError(t, err)
					c.Checker.Check(t.Context(), placed("z1"))
					time.Sleep(max(result.RequeueAfter, time.Second))
					require.NoError(t, c.Client.Get(t.Context(), name, &pod))
					return pod.Labels[v1alpha1.VirtualNodeLabel] != "" || placement.Terminal(&pod) ||
						c.State.Pod("uid").Left == placed("z1")
				}
				for range 30 {
					require.False(t, left(), "the provider has it")
				}
				there.PrependReactor(tc.verb, "*", tc.answer)
				off := time.Now()
				for time.Since(off) < 50*time.Second {
					require.False(t, left(), "after %s without an answer", time.Since(off))
				}
				has := false
				for time.Since(off) < 3*time.Minute {
					has = left()
				}
				require.Equal(t, tc.leaves, has)
			})
		})
	}
}

// An administrator gives up a provider that rejects the broker for good by draining it. One that is not drained keeps
// its pods.
func TestADrainedProviderThatRefusesIsGivenUp(t *testing.T) {
	for name, tc := range map[string]struct{ drained, deleting, gone bool }{
		"drained":                          {true, false, false},
		"its VirtualNode is being deleted": {false, true, false},
		"both":                             {true, true, false},
		"drained, and then its VirtualNode is gone": {true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drained := tc.drained
				objects := slices.Concat(unpeered()[1:], []client.Object{assignedPod(corev1.PodRunning), &v1alpha1.ProviderCluster{
					ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: v1alpha1.ProviderClusterSpec{Drain: tc.drained},
				}})
				c := newController(t, true, interceptor.Funcs{}, nil, objects...)
				c.Policies.Defaults.FailoverAfter, c.ProbeInterval = time.Minute, 5*time.Second
				c.RemoteNamespace = func(context.Context, string, string) (string, error) { return "ns-r", nil }
				c.also("p")
				c.State.SetProvider("q", state.ProviderSpec{
					Enabled: true, Draining: tc.drained,
					VirtualNodes: map[string]bool{"q1": tc.deleting}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
				}, &v1alpha1.ProviderClusterStatus{})
				for range 2 {
					c.State.ObserveProbe("q", state.Probe{
						Began: time.Now(), Ended: time.Now(), Alive: true, Reason: v1alpha1.ReasonRejects,
					})
				}
				c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning}).PrependReactor("*", "*", forbidden)
				began := time.Now()
				for time.Since(began) < 10*time.Minute {
					pod, result := c.reconciled(t, "pod")
					if pod.Labels[v1alpha1.VirtualNodeLabel] == "p1" {
						require.True(t, drained)
						require.GreaterOrEqual(t, time.Since(began), time.Minute)
						return
					}
					c.Checker.Check(t.Context(), placed("q1"))
					time.Sleep(max(result.RequeueAfter, time.Second))
					if tc.gone && time.Since(began) > 20*time.Second {
						c.State.RemoveProvider("q")
					}
				}
				require.False(t, drained)
			})
		})
	}
}

// A provider rejects the broker for a long time, and accepts it again: the broker asks it again about the pod that runs
// there.
func TestWhatAProviderRefusedBeforeItAcceptedTheBrokerDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodRunning, leaves("q1")))
		c.Policies.Defaults.FailoverAfter, c.ProbeInterval = time.Minute, 5*time.Second
		c.also("p")
		c.reachable()
		probed := func(probe state.Probe) {
			probe.Began, probe.Ended = time.Now(), time.Now()
			c.State.ObserveProbe("q", probe)
		}
		rejects := true
		there := c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning})
		there.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return rejects, nil, kerrors.NewForbidden(corev1.Resource("pods"), "", nil)
		})
		for range 2 {
			probed(state.Probe{Alive: true, Reason: v1alpha1.ReasonRejects})
		}
		stays := func() time.Duration {
			pod, result := c.reconciled(t, "pod")
			require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel])
			return max(result.RequeueAfter, time.Second)
		}
		for range 60 {
			wait := stays()
			c.Checker.Check(t.Context(), placed("q1"))
			time.Sleep(wait)
		}
		probed(state.Probe{Answered: true})
		stays()
		rejects = false
		for range 20 {
			c.Checker.Check(t.Context(), placed("q1"))
			time.Sleep(stays())
		}
	})
}

// Its probes are answered, and the rights in the namespace of the pod are gone: a pod that does not start there starts
// elsewhere.
func TestAPodLeavesANamespaceInWhichAProviderRefusesTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodPending))
		c.Policies.Defaults.FailoverAfter, c.Policies.Defaults.PendingTimeout, c.ProbeInterval = time.Minute, time.Minute, 5*time.Second
		c.leadsSince(t, time.Now())
		c.also("p")
		c.reachable()
		c.connect("q1", corev1.PodStatus{}).PrependReactor("*", "*", forbidden)
		for began := time.Now(); ; {
			require.Less(t, time.Since(began), 10*time.Minute)
			pod, result := c.reconciled(t, "pod")
			if time.Since(began) < rejectionProbes*c.ProbeInterval {
				require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel], "probes may show soon that it rejects the broker altogether")
			}
			if pod.Labels[v1alpha1.VirtualNodeLabel] == "p1" {
				require.GreaterOrEqual(t, time.Since(began), time.Minute)
				return
			}
			c.Checker.Check(t.Context(), placed("q1"))
			time.Sleep(max(result.RequeueAfter, time.Second))
		}
	})
}

// A leader that began when the VirtualNode was gone has no connection to its provider, where the pod may run.
func TestAPodStaysAtAProviderThatWasNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, true, interceptor.Funcs{}, nil, unpeered()...)
		c.Policies.Defaults.FailoverAfter = time.Minute
		step := func() string {
			pod, result := c.reconciled(t, "pod")
			c.Checker.Check(t.Context(), placed("z1"))
			time.Sleep(max(result.RequeueAfter, time.Second))
			return pod.Labels[v1alpha1.VirtualNodeLabel]
		}
		for range 100 {
			require.Empty(t, step())
		}
		// Another VirtualNode of the provider is gone as well, but its connection is there.
		there := c.connect("z2", corev1.PodStatus{Phase: corev1.PodRunning})
		require.NoError(t, there.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-r", Name: "other", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "z1"},
		}}))
		for step() == "" {
			require.NotEmpty(t, there.Actions(), "the provider is asked")
		}
	})
}

// Liqo's crd-replicator drops a NamespaceMap without removing anything at a provider that has revoked its permissions.
// The pod has the namespace there, and the identity of the slice may still ask about it.
func TestANamespaceThatIsMappedNoMoreProvesNothing(t *testing.T) {
	never := func(pod *corev1.Pod) { pod.Annotations[v1alpha1.FailoverAnnotation] = string(v1alpha1.FailoverNever) }
	for name, tc := range map[string]struct {
		change                     []func(*corev1.Pod)
		runs, refuses, unconnected bool
		leaves                     bool
	}{
		"it runs there":                                {nil, true, false, false, false},
		"it does not":                                  {nil, false, false, false, true},
		"the provider refuses to say":                  {nil, true, true, false, true},
		"one that never fails over waits for it":       {[]func(*corev1.Pod){never}, true, true, false, false},
		"there is no identity to ask by":               {nil, true, false, true, true},
		"one that never fails over waits for one":      {[]func(*corev1.Pod){never}, true, false, true, false},
		"one that never fails over does not run there": {[]func(*corev1.Pod){never}, false, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := unpeered(append(tc.change, func(pod *corev1.Pod) {
					pod.Annotations[v1alpha1.RemoteNamespaceAnnotation] = "ns-r"
				})...)
				c := newController(t, true, interceptor.Funcs{}, nil, objects[:2]...) // Without the NamespaceMap.
				c.Policies.Defaults.FailoverAfter, c.ProbeInterval = time.Minute, 5*time.Second
				if !tc.unconnected {
					there := c.connect("z1", corev1.PodStatus{Phase: corev1.PodRunning})
					if !tc.runs {
						require.NoError(t, there.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns-r", "pod"))
					}
					if tc.refuses {
						there.PrependReactor("*", "*", forbidden)
					}
				}
				for began := time.Now(); time.Since(began) < 3*time.Minute; {
					pod, result := c.reconciled(t, "pod")
					if pod.Labels[v1alpha1.VirtualNodeLabel] != "" || c.State.Pod("uid").Left == placed("z1") {
						require.True(t, tc.leaves)
						return
					}
					c.Checker.Check(t.Context(), placed("z1"))
					time.Sleep(max(result.RequeueAfter, time.Second))
				}
				require.False(t, tc.leaves)
			})
		})
	}
}

// Liqo binds the rights to each namespace: without it there is no answer but 403. Others refuse this cluster as a
// whole.
func TestANamespaceThatAProviderHasRemovedIsNotWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal error
		leaves  bool
	}{
		"it may not be asked there":         {kerrors.NewForbidden(corev1.Resource("pods"), "", nil), true},
		"the provider rejects this cluster": {kerrors.NewUnauthorized("no"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, there, _ := unmapped(t)
				there.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.refusal })
				for range 3 {
					c.reconciled(t, "pod")
					c.Checker.Check(t.Context(), placed("q1"))
				}
				left, _ := c.reconciled(t, "pod")
				require.Equal(t, tc.leaves, left.Labels[v1alpha1.VirtualNodeLabel] != "", "it is assigned again")
			})
		})
	}
}

// Nothing else deletes the ShadowPod: the virtual kubelet reflects the namespace no more.
func TestTheShadowPodInANamespaceThatIsMappedNoMoreIsDeleted(t *testing.T) {
	c, _, liqo := unmapped(t)
	c.reconciled(t, "pod")
	c.Checker.Check(t.Context(), placed("q1"))
	c.reconciled(t, "pod")
	left, err := liqo.OffloadingV1beta1().ShadowPods("ns-r").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, left.Items)
}

// unmapped is a broker with a pod that leaves q1, where it runs in a namespace that no NamespaceMap has any more.
func unmapped(t *testing.T) (*Controller, *kubefake.Clientset, *liqofake.Clientset) {
	t.Helper()
	c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodPending, func(pod *corev1.Pod) {
		left("q1")(pod)
		pod.Annotations[v1alpha1.RemoteNamespaceAnnotation] = "ns-r"
		pod.Annotations[v1alpha1.FailoverAnnotation] = string(v1alpha1.FailoverNever)
	}))
	c.ProbeInterval = 5 * time.Second
	c.State.SetProvider("q", state.ProviderSpec{
		Enabled: true, VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{"other": "other-r"},
	}, &v1alpha1.ProviderClusterStatus{})
	liqo, kube := c.hasShadowPod()
	shadow, err := liqo.OffloadingV1beta1().ShadowPods("ns-r").Get(t.Context(), "pod", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, kube.Tracker().Add(&corev1.Pod{
		ObjectMeta: *shadow.ObjectMeta.DeepCopy(), Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}))
	return c, kube, liqo
}

// The answer of the API server to an assignment was lost, and the cache shows for a while that the pod is still
// leaving.
func TestARoomStaysReservedUntilTheCacheShowsTheAssignment(t *testing.T) {
	moving := assignedPod(corev1.PodPending, left("z1"))
	var server client.Client
	var cached *corev1.Pod
	c := newController(t, true, interceptor.Funcs{
		Get: func(ctx context.Context, at client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if pod, is := into.(*corev1.Pod); is && cached != nil {
				cached.DeepCopyInto(pod)
				return nil
			}
			return at.Get(ctx, key, into, opts...)
		},
		Patch: func(ctx context.Context, at client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := at.Patch(ctx, o, patch, opts...); err != nil {
				return err
			}
			server = at
			return context.DeadlineExceeded
		},
	}, nil, moving)
	var before corev1.Pod
	require.NoError(t, c.Live.Get(t.Context(), client.ObjectKeyFromObject(moving), &before))
	cached = &before
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(moving)}
	_, err := c.Reconcile(t.Context(), request)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	c.Live = server
	for range 3 {
		_, err = c.Reconcile(t.Context(), request)
		require.NoError(t, err)
		q, _ := c.State.Provider("q")
		require.Equal(t, 1, q.Assigned["q1"].Pods)
	}
}
