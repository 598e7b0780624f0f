package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
)

// reachable has the provider q be reachable, with the namespace ns of the broker's cluster.
func (c *Controller) reachable() {
	c.State.SetProvider("q", state.ProviderSpec{
		Enabled: true, VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
	}, &v1alpha1.ProviderClusterStatus{})
}

// A condition PodReadyToStartContainers of the last provider would switch pendingTimeout off at the next one.
func TestThatAKubeletReportedIsRemovedWithTheAssignment(t *testing.T) {
	const gate = "example.com/registered"
	refusal := v1alpha1.ConditionRefusedPrefix + "p1"
	leaving := func(phase corev1.PodPhase, kinds ...corev1.PodConditionType) *corev1.Pod {
		pod := assignedPod(phase, waits("ContainerCreating"))
		leaves("q1")(pod)
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
		for _, kind := range kinds {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
		}
		return pod
	}
	ours := []corev1.PodConditionType{corev1.PodScheduled, gate, v1alpha1.ConditionAssigned, corev1.PodConditionType(refusal)}
	for name, tc := range map[string]struct {
		phase    corev1.PodPhase
		reported []corev1.PodConditionType
	}{
		"it ran there": {corev1.PodRunning, []corev1.PodConditionType{
			corev1.PodReady, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady,
		}},
		"it never ran there":          {corev1.PodPending, []corev1.PodConditionType{corev1.PodReady, corev1.PodReadyToStartContainers}},
		"of a kind that is not known": {corev1.PodPending, []corev1.PodConditionType{"provider.example.com/Checked"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, true, interceptor.Funcs{}, nil, leaving(tc.phase, append(tc.reported, ours...)...))
			c.reachable()
			pod, _ := c.reconciled(t, "pod")
			left := sets.New[corev1.PodConditionType]()
			for i := range pod.Status.Conditions {
				left.Insert(pod.Status.Conditions[i].Type)
			}
			require.Equal(t, sets.New(append(ours, corev1.PodReady)...), left)
			require.Empty(t, pod.Status.ContainerStatuses)
			require.Equal(t, corev1.PodPending, pod.Status.Phase)
			again, _ := c.reconciled(t, "pod")
			require.Equal(t, pod.ResourceVersion, again.ResourceVersion, "it is written once")
		})
	}
}

// Liqo's ShadowPod controller makes a pod again, under its name, when its node at the provider dies, is drained, or
// preempts it.
func TestAPodThatItsProviderMakesAgainHasPendingTimeout(t *testing.T) {
	pod := assignedPod(corev1.PodRunning)
	c := newController(t, true, interceptor.Funcs{}, nil, pod)
	clock := clocktesting.NewFakePassiveClock(noon)
	known := state.New(state.Config{Clock: clock, MovesAtOnce: 1})
	c.State, c.Clock = known, clock
	c.reachable()
	c.leadsSince(t, noon.Add(-time.Hour))
	known.ObserveProbe("q", state.Probe{Began: noon, Ended: noon, Answered: true})
	c.Policies.Defaults.PendingTimeout = 2 * time.Minute
	again := corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "c", RestartCount: 1, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}}}
	c.connect("q1", again)
	c.reconciled(t, "pod")

	clock.SetTime(noon.Add(72 * time.Hour))
	var now corev1.Pod
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), &now))
	now.Status = again
	require.NoError(t, c.Client.Status().Update(t.Context(), &now))
	step := func() (corev1.Pod, time.Duration) {
		c.reconciled(t, "pod")
		c.Checker.Check(t.Context(), placed("q1"))
		pod, result := c.reconciled(t, "pod")
		return pod, result.RequeueAfter
	}
	left, wait := step()
	require.Equal(t, "q1", left.Labels[v1alpha1.VirtualNodeLabel])
	require.Equal(t, 2*time.Minute, wait)

	clock.SetTime(clock.Now().Add(wait))
	left, _ = step()
	require.Empty(t, left.Labels[v1alpha1.VirtualNodeLabel])
	shown, _ := known.Provider("q")
	require.Equal(t, 1, shown.Refusals[state.PendingTooLong])
	require.Zero(t, shown.KPIs.Failed, "it had started there")
}

func TestPendingTimeoutBeginsAnewWithTheLeader(t *testing.T) {
	c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodPending))
	c.reachable()
	c.Policies.Defaults.PendingTimeout = time.Minute
	pod, result := c.reconciled(t, "pod")
	require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel], "it may have run there until a moment ago")
	require.InDelta(t, time.Minute, result.RequeueAfter, float64(5*time.Second))
}

// The Job controller replaces a pod with podReplacementPolicy Failed, or a podFailurePolicy, when its phase is
// terminal.
func TestAPodThatIsDeletedHasATerminalPhaseBeforeItIsRemoved(t *testing.T) {
	const tracking = "batch.kubernetes.io/job-tracking"
	for name, change := range map[string]func(*corev1.Pod){
		"it has no provider": func(pod *corev1.Pod) { pod.Labels, pod.Annotations = nil, nil },
		"its VirtualNode is gone": func(pod *corev1.Pod) {
			pod.Labels[v1alpha1.VirtualNodeLabel], pod.Labels[v1alpha1.ProviderLabel] = "z1", "z"
			pod.Annotations[v1alpha1.ReleasedAnnotation] = v1alpha1.Assignment("z1", pod)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodPending, change, func(pod *corev1.Pod) {
				pod.Finalizers = []string{tracking}
				deleting(pod)
			}))
			var pod corev1.Pod
			for range 4 {
				pod, _ = c.reconciled(t, "pod")
			}
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)

			pod.Finalizers = nil
			require.NoError(t, client.IgnoreNotFound(c.Client.Update(t.Context(), &pod)))
			require.Error(t, c.Client.Get(t.Context(), client.ObjectKeyFromObject(&pod), &pod))
		})
	}
}
