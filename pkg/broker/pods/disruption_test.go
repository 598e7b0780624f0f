package pods

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// also has the controller know another provider, which can be reached, with a VirtualNode of two CPUs.
func (c *Controller) also(id string) {
	c.State.SetProvider(id, state.ProviderSpec{
		Enabled: true, VirtualNodes: map[string]bool{id + "1": false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
	}, &v1alpha1.ProviderClusterStatus{})
	now := time.Now()
	c.State.ObserveProbe(id, state.Probe{Began: now, Ended: now, Answered: true})
	c.State.Schedule(scheduler.Provider{
		ID: id, Enabled: true, Ready: true, Namespaces: sets.New("ns"),
		Slices: []scheduler.Slice{{VirtualNode: id + "1", Granted: resources.Amounts{corev1.ResourceCPU: 2000}}},
	})
}

// loses has provider q be unreachable since a day.
func (c *Controller) loses() {
	for i := range 2 {
		at := time.Now().Add(-24*time.Hour + time.Duration(i)*time.Second)
		c.State.ObserveProbe("q", state.Probe{Began: at, Ended: at})
	}
	c.State.Schedule(scheduler.Provider{ID: "q", Enabled: true, Namespaces: sets.New("ns"), Slices: []scheduler.Slice{{
		VirtualNode: "q1", Granted: resources.Amounts{corev1.ResourceCPU: 2000},
	}}})
	c.Policies.Defaults.FailoverAfter = time.Minute
}

// Liqo's nodefailure-controller ends such pods of a virtual node that is not Ready. The broker's Node is Ready.
func TestAPodThatIsBeingDeletedEndsWhenItsProviderIsLost(t *testing.T) {
	for failover, ends := range map[v1alpha1.FailoverMode]bool{v1alpha1.FailoverMove: true, v1alpha1.FailoverNever: false} {
		t.Run(string(failover), func(t *testing.T) {
			c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodRunning, deleting, func(pod *corev1.Pod) {
				pod.Finalizers = []string{"example.com/kept"}
				pod.Annotations[v1alpha1.FailoverAnnotation] = string(failover)
			}))
			c.loses()
			var pod corev1.Pod
			for range 4 {
				pod, _ = c.reconciled(t, "pod")
			}
			require.Equal(t, ends, pod.Status.Phase == corev1.PodFailed)
			known, _ := c.State.Provider("q")
			require.Equal(t, ends, known.Unclean, "its copy is removed before the provider is given new pods")
		})
	}
}

// The API server of a provider is upgraded, its pods run on. The virtual kubelet would end a pod that was taken away
// when it is back.
func TestAPodOfAnUnreachableProviderStaysUntilAnotherOneFits(t *testing.T) {
	replica := func(name string) *corev1.Pod {
		return assignedPod(corev1.PodRunning, func(pod *corev1.Pod) {
			pod.Name, pod.UID, pod.Spec.Containers = name, types.UID(name), cpus("1500m")
		})
	}
	c := newController(t, true, interceptor.Funcs{}, nil, replica("a"), replica("b"))
	events, _ := c.Events.(*record.FakeRecorder)
	c.loses()
	for range 4 {
		pod, result := c.reconciled(t, "a")
		require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
		require.Equal(t, longestNowhere, result.RequeueAfter)
		require.NotEmpty(t, pod.Annotations[v1alpha1.UnreachableAnnotation], "it gets no traffic")
	}
	require.Equal(t, "Warning MoveWaits Staying at q1, whose provider is unreachable: no provider cluster fits: not ready",
		<-events.Events)
	require.Empty(t, events.Events, "once")

	c.also("p")
	taken, _ := c.reconciled(t, "a")
	require.Empty(t, taken.Labels[v1alpha1.VirtualNodeLabel])
	stays, _ := c.reconciled(t, "b")
	require.Equal(t, "q1", stays.Labels[v1alpha1.VirtualNodeLabel], "the capacity there is for the one that leaves")
	for range 3 {
		taken, _ = c.reconciled(t, "a")
	}
	require.Equal(t, "p1", taken.Labels[v1alpha1.VirtualNodeLabel])
	known, _ := c.State.Provider("p")
	require.Equal(t, int64(1500), known.Assigned["p1"].Resources[corev1.ResourceCPU], "nothing is reserved any more")
	stays, _ = c.reconciled(t, "b")
	require.Equal(t, "q1", stays.Labels[v1alpha1.VirtualNodeLabel])
}

// Kubernetes never starts a container of such a pod again.
func TestAPodThatRunsOnceIsNotStartedElsewhere(t *testing.T) {
	running := corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	for name, tc := range map[string]struct {
		here, there corev1.PodPhase
		lost        bool
		moves       bool
	}{
		"a drain ends it": {here: corev1.PodRunning, there: corev1.PodRunning},
		"also if only its provider shows that it runs": {here: corev1.PodPending, there: corev1.PodRunning},
		"an outage ends it":                            {here: corev1.PodRunning, there: corev1.PodRunning, lost: true},
		"one that has not started moves":               {here: corev1.PodPending, there: corev1.PodPending, moves: true},
		"from a lost provider as well":                 {here: corev1.PodPending, there: corev1.PodPending, lost: true, moves: true},
	} {
		t.Run(name, func(t *testing.T) {
			status := func(phase corev1.PodPhase) corev1.PodStatus {
				status := corev1.PodStatus{Phase: phase}
				if phase == corev1.PodRunning {
					status.ContainerStatuses = []corev1.ContainerStatus{running}
				}
				return status
			}
			c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(tc.here, func(pod *corev1.Pod) {
				pod.Spec.RestartPolicy, pod.Spec.Containers, pod.Status = corev1.RestartPolicyNever, cpus("1"), status(tc.here)
			}))
			c.also("p")
			there := c.connect("q1", status(tc.there))
			if c.drains(); tc.lost {
				c.loses()
			}
			var pod corev1.Pod
			for i := range 8 {
				pod, _ = c.reconciled(t, "pod")
				c.Checker.Check(t.Context(), placed("q1"))
				if i == 3 {
					require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
					c.released(t, &pod, v1alpha1.Assignment("q1", &pod))
				}
			}
			if tc.moves {
				require.Equal(t, "p1", pod.Labels[v1alpha1.VirtualNodeLabel])
				return
			}
			require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel])
			require.Empty(t, pod.Annotations[v1alpha1.MovingFromAnnotation])
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)
			target := placement.Condition(&pod, corev1.DisruptionTarget)
			require.NotNil(t, target)
			require.Equal(t, v1alpha1.ReasonEvictionByBroker, target.Reason)
			for _, container := range pod.Status.ContainerStatuses {
				require.Equal(t, int32(137), container.State.Terminated.ExitCode)
				require.Nil(t, container.State.Running)
			}
		})
	}
}

// The node there died, and Liqo's controller has made the pod again: its status shows no trace of its run.
func TestAPodThatRunsOnceAndThatItsProviderMakesAgainIsNotStartedElsewhere(t *testing.T) {
	for name, assigned := range map[string]time.Duration{"assigned by this leader": time.Minute, "by the leader before": -time.Minute} {
		t.Run(name, func(t *testing.T) { isNotStartedElsewhere(t, time.Now().Add(assigned)) })
	}
}

func isNotStartedElsewhere(t *testing.T, assigned time.Time) {
	t.Helper()
	c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodRunning, func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy, pod.Spec.Containers = corev1.RestartPolicyNever, cpus("1")
		pod.Annotations[v1alpha1.AssignedAtAnnotation] = assigned.Format(time.RFC3339Nano)
	}))
	c.also("p")
	c.reachable()
	pod, _ := c.reconciled(t, "pod")
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	require.NoError(t, c.Client.Status().Update(t.Context(), &pod))
	c.reconciled(t, "pod")
	c.drains()
	there := c.connect("q1", corev1.PodStatus{Phase: corev1.PodPending})
	for i := range 8 {
		pod, _ = c.reconciled(t, "pod")
		c.Checker.Check(t.Context(), placed("q1"))
		if i == 3 {
			require.NoError(t, there.CoreV1().Pods("ns-r").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
			c.released(t, &pod, v1alpha1.Assignment("q1", &pod))
		}
	}
	require.Equal(t, corev1.PodFailed, pod.Status.Phase)
	require.NotEqual(t, "p1", pod.Labels[v1alpha1.VirtualNodeLabel])
}

// The virtual kubelet writes that it has released the pod while its end is written.
func TestAPodThatRunsOnceIsNotStartedElsewhereWhenItsEndCouldNotBeWritten(t *testing.T) {
	conflicts := 0
	c := newController(t, true, interceptor.Funcs{
		SubResourcePatch: func(
			ctx context.Context, to client.Client, sub string, o client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption,
		) error {
			if data, err := patch.Data(o); err == nil && strings.Contains(string(data), string(corev1.PodFailed)) && conflicts < 2 {
				conflicts++
				return kerrors.NewConflict(schema.GroupResource{Resource: "pods"}, o.GetName(), nil)
			}
			return to.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	}, nil, assignedPod(corev1.PodRunning, func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy, pod.Spec.Containers = corev1.RestartPolicyNever, cpus("1")
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}
	}))
	c.also("p")
	c.loses()
	var pod corev1.Pod
	for range 8 {
		pod, _ = c.reconciled(t, "pod")
		require.NotEqual(t, "p1", pod.Labels[v1alpha1.VirtualNodeLabel])
	}
	require.Equal(t, 2, conflicts)
	require.Equal(t, corev1.PodFailed, pod.Status.Phase)
}

// Its kubelet reports how it ended when it is deleted.
func TestTheEndOfAPodThatRunsOnceIsThatOfItsKubelet(t *testing.T) {
	c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodRunning, func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}))
	c.drains()
	there := c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning})
	for range 4 {
		c.reconciled(t, "pod")
		c.Checker.Check(t.Context(), placed("q1"))
	}
	remote, err := there.CoreV1().Pods("ns-r").Get(t.Context(), "pod", metav1.GetOptions{})
	require.NoError(t, err)
	remote.DeletionTimestamp, remote.Status = ptr.To(metav1.NewTime(noon)), corev1.PodStatus{
		Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
		}},
	}
	require.NoError(t, there.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), remote, "ns-r"))
	c.Checker.Check(t.Context(), placed("q1"))
	pod, _ := c.reconciled(t, "pod")
	require.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
	require.Equal(t, "Completed", pod.Status.ContainerStatuses[0].State.Terminated.Reason)
}

// Its status here is removed because it moves, and its provider reports that it runs: the two must not overwrite each
// other.
func TestAPodThatRunsOnceAndIsDeletedIsNotWrittenWhileItLeaves(t *testing.T) {
	c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodPending, func(pod *corev1.Pod) {
		left("q1")(pod)
		pod.Spec.RestartPolicy, pod.Finalizers = corev1.RestartPolicyNever, []string{"batch.kubernetes.io/job-tracking"}
		pod.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
	}))
	c.reachable()
	c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}})
	c.reconciled(t, "pod")
	c.Checker.Check(t.Context(), placed("q1"))
	before, _ := c.reconciled(t, "pod")
	for range 3 {
		after, _ := c.reconciled(t, "pod")
		require.Equal(t, before.ResourceVersion, after.ResourceVersion)
	}
}

// Liqo makes no new pod of the ShadowPod of one that was evicted, and the quota of the slice counts it until it is
// deleted.
func TestAPodThatItsProviderHasEvictedLeavesItsShadowPod(t *testing.T) {
	target := func(reason string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}
		}
	}
	reason := func(reason string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Status.Reason = reason } }
	ownedBy := func(kind string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", UID: "owner", Controller: ptr.To(true)}}
		}
	}
	for name, tc := range map[string]struct {
		change          []func(*corev1.Pod)
		phase           corev1.PodPhase
		keeps, released bool
	}{
		"by the API: its owner replaces it": {
			[]func(*corev1.Pod){target("EvictionByEvictionAPI"), ownedBy("ReplicaSet")}, corev1.PodFailed, false, false,
		},
		"one of a consumer": {
			[]func(*corev1.Pod){target("EvictionByEvictionAPI"), ownedBy("ShadowPod")}, corev1.PodFailed, true, true,
		},
		"one without an owner": {[]func(*corev1.Pod){target("EvictionByEvictionAPI")}, corev1.PodFailed, true, true},
		"by its kubelet": {
			[]func(*corev1.Pod){target("TerminationByKubelet"), reason("Evicted"), ownedBy("ReplicaSet")}, corev1.PodFailed, true, true,
		},
		"without the condition": {
			[]func(*corev1.Pod){reason("RemotePodTerminated"), ownedBy("ReplicaSet")}, corev1.PodFailed, true, true,
		},
		"it has failed by itself": {[]func(*corev1.Pod){ownedBy("Job")}, corev1.PodFailed, true, false},
		"it has succeeded":        {[]func(*corev1.Pod){ownedBy("Job")}, corev1.PodSucceeded, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(tc.phase, tc.change...))
			_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "pod"}})
			require.NoError(t, err)
			var pod corev1.Pod
			err = c.Client.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "pod"}, &pod)
			require.Equal(t, tc.keeps, err == nil)
			if tc.keeps {
				require.Equal(t, tc.released, pod.Labels[v1alpha1.VirtualNodeLabel] == "" && pod.Labels[v1alpha1.ProviderLabel] == "")
				require.Equal(t, tc.phase, pod.Status.Phase)
			}
		})
	}
}

func TestAPodIsWaitedForWhileItsProviderAddsANode(t *testing.T) {
	for name, tc := range map[string]struct {
		reason       string
		uid          types.UID
		ago, pending time.Duration
		stays        bool
	}{
		"a cluster autoscaler has started a node": {"TriggeredScaleUp", "uid", 10 * time.Minute, 20 * time.Minute, true},
		"that was too long ago":                   {"TriggeredScaleUp", "uid", 16 * time.Minute, 20 * time.Minute, false},
		"it starts nodes again and again":         {"TriggeredScaleUp", "uid", time.Second, time.Hour, false},
		"for an earlier pod of the name":          {"TriggeredScaleUp", "earlier", time.Minute, 20 * time.Minute, false},
		"it starts none":                          {"NotTriggerScaleUp", "uid", time.Minute, 20 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodPending, func(pod *corev1.Pod) {
				pod.Annotations[v1alpha1.AssignedAtAnnotation] = now.Add(-tc.pending).Format(time.RFC3339Nano)
			}), &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "event"},
				Reason:     tc.reason, LastTimestamp: metav1.NewTime(now.Add(-tc.ago)),
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "pod", UID: tc.uid},
			})
			c.leadsSince(t, noon)
			c.reachable()
			c.Policies.Defaults.PendingTimeout = 2 * time.Minute
			c.connect("q1", corev1.PodStatus{Phase: corev1.PodPending})
			c.reconciled(t, "pod")
			c.Checker.Check(t.Context(), placed("q1"))
			pod, result := c.reconciled(t, "pod")
			require.Equal(t, tc.stays, pod.Labels[v1alpha1.VirtualNodeLabel] == "q1")
			require.Equal(t, tc.stays, result.RequeueAfter > 0)
		})
	}
}

// Liqo's controller at the provider is down. It may make the pod at any time, so the pod stays and the slice closes;
// unless the controller has said that it cannot make this one.
func TestASliceWhosePodsAreNotMadeCloses(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		ago    time.Duration
		stays  bool
	}{
		"it says nothing":                        {"SuccessfulSATokensReflection", time.Minute, true},
		"it cannot make the pod":                 {"FailedCreatePod", time.Minute, false},
		"it could not before the pod was moved":  {"FailedCreatePod", time.Hour, true},
		"the pod has waited for five times that": {"", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodPending, func(pod *corev1.Pod) {
				pod.Annotations[v1alpha1.AssignedAtAnnotation] = now.Add(-5 * time.Minute).Format(time.RFC3339Nano)
			}), &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "event"},
				Reason:     tc.reason, LastTimestamp: metav1.NewTime(now.Add(-tc.ago)),
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "pod", UID: "uid"},
			})
			c.leadsSince(t, noon)
			c.reachable()
			c.Policies.Defaults.PendingTimeout = 2 * time.Minute
			if tc.reason == "" {
				c.Policies.Defaults.PendingTimeout = 55 * time.Second
			}
			_, kube := c.hasShadowPod()
			stays := func() bool {
				c.reconciled(t, "pod")
				c.Checker.Check(t.Context(), placed("q1"))
				pod, result := c.reconciled(t, "pod")
				require.Equal(t, tc.stays, result.RequeueAfter > 0)
				return pod.Labels[v1alpha1.VirtualNodeLabel] == "q1"
			}
			require.Equal(t, tc.stays, stays())
			q, _ := c.State.Provider("q")
			require.Equal(t, tc.stays, len(q.Closed) == 1)
			if tc.stays {
				require.NoError(t, kube.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns-r", Name: "pod", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q1"},
					Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "uid"},
				}, Status: corev1.PodStatus{Phase: corev1.PodPending}}))
				require.True(t, stays(), "it is made at last, and has its time to start")
			}
		})
	}
}

// refuseLargeAnnotations answers as the API server does to annotations of more than 256 KiB.
func refuseLargeAnnotations(
	ctx context.Context, to client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption,
) error {
	body, err := patch.Data(o)
	if err != nil {
		return err
	}
	var change struct {
		Metadata struct{ Annotations map[string]*string }
	}
	if err := json.Unmarshal(body, &change); err != nil {
		return err
	}
	var now corev1.Pod
	if err := to.Get(ctx, client.ObjectKeyFromObject(o), &now); err != nil {
		return err
	}
	for key, value := range change.Metadata.Annotations {
		if delete(now.Annotations, key); value != nil {
			now.Annotations[key] = *value
		}
	}
	if err := validation.ValidateAnnotationsSize(now.Annotations); err != nil {
		return kerrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, o.GetName(), nil)
	}
	return to.Patch(ctx, o, patch, opts...)
}

func TestAnnotationsOfAConsumerKeepNoPodAtItsProvider(t *testing.T) {
	const note = "consumer.example.com/note"
	for name, lost := range map[string]bool{"that is drained": false, "that is lost": true} {
		t.Run(name, func(t *testing.T) {
			pod := assignedPod(corev1.PodRunning, func(pod *corev1.Pod) { pod.Spec.Containers = cpus("1") })
			free := validation.TotalAnnotationSizeLimitB - len(note)
			for key, value := range pod.Annotations {
				free -= len(key) + len(value)
			}
			pod.Annotations[note] = strings.Repeat("x", free)
			c := newController(t, true, interceptor.Funcs{Patch: refuseLargeAnnotations}, nil, pod)
			c.also("p")
			c.connect("q1", corev1.PodStatus{Phase: corev1.PodRunning})
			if c.drains(); lost {
				c.loses()
			}
			var now corev1.Pod
			for range 3 {
				now, _ = c.reconciled(t, "pod")
				c.Checker.Check(t.Context(), placed("q1"))
			}
			require.NotEqual(t, "q1", now.Labels[v1alpha1.VirtualNodeLabel])
			require.NotEmpty(t, now.Annotations[v1alpha1.AssignedAtAnnotation])
		})
	}
}
