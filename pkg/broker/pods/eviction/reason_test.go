package eviction

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// assignedPod is a pod that was assigned to VirtualNode q1 five minutes before noon.
func assignedPod(phase corev1.PodPhase, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "pod", UID: "uid",
			Labels:      map[string]string{v1alpha1.VirtualNodeLabel: "q1", v1alpha1.ProviderLabel: "q"},
			Annotations: map[string]string{v1alpha1.AssignedAtAnnotation: noon.Add(-5 * time.Minute).Format(time.RFC3339Nano)},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// assignedIn has a pod assigned so long after noon.
func assignedIn(after time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations[v1alpha1.AssignedAtAnnotation] = noon.Add(after).Format(time.RFC3339Nano)
	}
}

func deleting(pod *corev1.Pod) { deletedIn(0)(pod) }

// deletedIn has a pod be deleted, whose grace period ends so long after noon.
func deletedIn(grace time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: noon.Add(grace)} }
}

func refusedBy(virtualNode string, at time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type:   corev1.PodConditionType(v1alpha1.ConditionRefusedPrefix + virtualNode),
			Status: corev1.ConditionTrue, Reason: refusal.QuotaExceeded, LastTransitionTime: metav1.NewTime(at),
		}}
	}
}

// waits has the container of a pod wait for a reason.
func waits(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		}}
	}
}

func initContainer(pod *corev1.Pod) {
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "download", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
}

func sandboxReady(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue,
	})
}

func TestEvictionReason(t *testing.T) {
	usual := placement.Rules{Failover: v1alpha1.FailoverMove, FailoverAfter: time.Minute, PendingTimeout: 10 * time.Minute}
	never := usual
	never.Failover = v1alpha1.FailoverNever
	impatient := usual
	impatient.PendingTimeout = 4 * time.Minute
	patient := usual
	patient.PendingTimeout = 0
	lost := func(ago time.Duration) state.VirtualNode {
		return state.VirtualNode{Known: true, Confirmed: true, UnreachableSince: noon.Add(-ago), FailoverFrom: noon.Add(-ago)}
	}
	suspended := state.VirtualNode{
		Known: true, Confirmed: true,
		UnreachableSince: noon.Add(-time.Hour), FailoverFrom: noon.Add(-time.Hour), MovesSuspended: true,
	}
	again := state.VirtualNode{
		Known: true, Confirmed: true,
		UnreachableSince: noon.Add(-time.Hour), FailoverFrom: noon.Add(-45 * time.Second),
	}
	unconfirmed := state.VirtualNode{Known: true, Draining: true}
	fine := state.VirtualNode{Known: true, Confirmed: true}
	draining := state.VirtualNode{Known: true, Confirmed: true, Draining: true}
	rejecting := state.VirtualNode{Known: true, Confirmed: true, Unusable: true}

	for _, tc := range []struct {
		name  string
		pod   *corev1.Pod
		at    state.VirtualNode
		r     placement.Rules
		want  Reason
		later time.Duration
	}{
		{"a running pod stays", assignedPod(corev1.PodRunning), fine, usual, None, 0},
		{
			"a pod of an unreachable provider waits until failoverAfter",
			assignedPod(corev1.PodRunning), lost(45 * time.Second), usual, None, 15 * time.Second,
		},
		{"then it moves", assignedPod(corev1.PodRunning), lost(time.Minute), usual, Unreachable, 0},
		{"unless it never fails over", assignedPod(corev1.PodRunning), lost(time.Hour), never, None, 0},
		{"or the broker suspects itself", assignedPod(corev1.PodRunning), suspended, usual, None, suspicionRecheck},
		{
			"the pod is checked after that, also if it never fails over",
			assignedPod(corev1.PodRunning), suspended, never, None, suspicionRecheck,
		},
		{
			"the time in which the broker suspected itself does not count",
			assignedPod(corev1.PodRunning), again, usual, None, 15 * time.Second,
		},
		{
			"one that is being deleted ends there, after its grace period",
			assignedPod(corev1.PodRunning, deletedIn(time.Minute)), lost(time.Hour), usual, None, time.Minute,
		},
		{"and after failoverAfter", assignedPod(corev1.PodRunning, deletedIn(0)), lost(45 * time.Second), usual, None, 15 * time.Second},
		{"then nothing else would end it", assignedPod(corev1.PodRunning, deletedIn(0)), lost(time.Minute), usual, Unreachable, 0},
		{"unless it must not run twice", assignedPod(corev1.PodRunning, deletedIn(0)), lost(time.Hour), never, None, 0},
		{"or the provider can be reached", assignedPod(corev1.PodRunning, deletedIn(-time.Hour)), fine, usual, None, 0},
		{"a terminal pod stays", assignedPod(corev1.PodSucceeded), lost(time.Hour), usual, None, 0},
		{"a failed pod is terminal, too", assignedPod(corev1.PodFailed), state.VirtualNode{}, usual, None, 0},
		{"a drained provider is emptied", assignedPod(corev1.PodRunning), draining, usual, Drained, 0},
		{
			"a new leader that does not know yet whether the provider can be reached moves nothing",
			assignedPod(corev1.PodRunning), unconfirmed, usual, None, 0,
		},
		{"nor a refused pod", assignedPod(corev1.PodPending, refusedBy("q1", noon.Add(-time.Minute))), unconfirmed, usual, None, 0},
		{"nor a pending one", assignedPod(corev1.PodPending), unconfirmed, impatient, None, 0},
		{"also of pods that never fail over: they do not run twice", assignedPod(corev1.PodRunning), draining, never, Drained, 0},
		{"a refused pod leaves at once", assignedPod(corev1.PodPending, refusedBy("q1", noon.Add(-time.Minute))), fine, usual, Refused, 0},
		{
			"a refusal by another VirtualNode does not count",
			assignedPod(corev1.PodPending, refusedBy("q2", noon.Add(-time.Minute))), fine, usual, None, 5 * time.Minute,
		},
		{
			"nor does one from before it was assigned",
			assignedPod(corev1.PodPending, refusedBy("q1", noon.Add(-time.Hour))), fine, usual, None, 5 * time.Minute,
		},
		{"a pending pod waits until its timeout", assignedPod(corev1.PodPending), fine, usual, None, 5 * time.Minute},
		{"then it leaves", assignedPod(corev1.PodPending), fine, impatient, PendingTooLong, 0},
		{
			"also if the clock was set back meanwhile, by less than the timeout",
			assignedPod(corev1.PodPending, assignedIn(4*time.Minute)), fine, impatient, None, 8 * time.Minute,
		},
		{"by more it is not waited for", assignedPod(corev1.PodPending, assignedIn(5*time.Minute)), fine, impatient, PendingTooLong, 0},
		{
			"unless its init container runs",
			assignedPod(corev1.PodPending, waits("PodInitializing"), initContainer), fine, impatient, None, 0,
		},
		{
			"or its image is being pulled",
			assignedPod(corev1.PodPending, waits("ContainerCreating"), sandboxReady), fine, impatient, None, 0,
		},
		{
			"a condition without any container's status is from its last provider",
			assignedPod(corev1.PodPending, sandboxReady), fine, impatient, PendingTooLong, 0,
		},
		{"but its sandbox has to be ready", assignedPod(corev1.PodPending, waits("ContainerCreating")), fine, impatient, PendingTooLong, 0},
		{
			"and its image must be there",
			assignedPod(corev1.PodPending, waits("ImagePullBackOff"), sandboxReady), fine, impatient, PendingTooLong, 0,
		},
		{"without a timeout it waits indefinitely", assignedPod(corev1.PodPending), fine, patient, None, 0},
		{
			"a pending pod of an unreachable provider may have started",
			assignedPod(corev1.PodPending), lost(time.Second), impatient, None, 59 * time.Second,
		},
		{"a provider that rejects the broker keeps its pods", assignedPod(corev1.PodRunning), rejecting, usual, None, 0},
		{"also those of which the status here is Pending", assignedPod(corev1.PodPending), rejecting, impatient, None, 0},
		{
			"a pod that is being deleted is not ended there either",
			assignedPod(corev1.PodRunning, deleting),
			state.VirtualNode{},
			usual, VirtualNodeGone, 0,
		},
		{"a VirtualNode that is gone serves no pod", assignedPod(corev1.PodRunning), state.VirtualNode{}, usual, VirtualNodeGone, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			why, later := Of(tc.pod, tc.at, tc.r, v1alpha1.AssignedAt(tc.pod), noon)
			require.Equal(t, tc.want, why)
			require.Equal(t, tc.later, later)
		})
	}
}

func TestAPodWaitsWhileItsProviderMakesNone(t *testing.T) {
	const timeout = 4 * time.Minute
	never := placement.Rules{PendingTimeout: timeout, Failover: v1alpha1.FailoverNever}
	for name, tc := range map[string]struct {
		waits, started time.Duration // So long before noon.
		rules          placement.Rules
		want           time.Duration
	}{
		"none has started":                     {5 * time.Minute, time.Hour, placement.Rules{PendingTimeout: timeout}, timeout},
		"it has waited for long":               {19 * time.Minute, time.Hour, placement.Rules{PendingTimeout: timeout}, time.Minute},
		"it has waited for too long":           {20 * time.Minute, time.Hour, placement.Rules{PendingTimeout: timeout}, 0},
		"it is never to fail over":             {20 * time.Hour, 24 * time.Hour, never, timeout},
		"another one has started":              {5 * time.Minute, time.Minute, placement.Rules{PendingTimeout: timeout}, 0},
		"another one has, that is not to move": {5 * time.Minute, time.Minute, never, 0},
		"the clock was set back":               {-time.Minute, time.Hour, placement.Rules{PendingTimeout: timeout}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			at := state.VirtualNode{Known: true, Confirmed: true, Started: state.Started{Last: noon.Add(-tc.started)}}
			require.Equal(t, tc.want, Unmade(at, tc.rules, noon.Add(-tc.waits), noon))
		})
	}
}

func TestAPodIsQueuedWhileOthersStart(t *testing.T) {
	const timeout = 4 * time.Minute
	at := func(before time.Duration) time.Time { return noon.Add(-before) }
	for _, tc := range []struct {
		name                       string
		assigned, last, leadsSince time.Time
		overtakenBy                time.Duration
		want                       time.Duration
	}{
		{"no pod has started", at(5 * time.Minute), time.Time{}, at(time.Hour), 0, 0},
		{"another one has started", at(5 * time.Minute), at(10 * time.Second), at(time.Hour), 0, timeout - 10*time.Second},
		{"that is as long ago as a pod may be Pending", at(5 * time.Minute), at(timeout), at(time.Hour), 0, 0},
		{"the leader is new", at(5 * time.Minute), time.Time{}, at(time.Minute), 0, timeout - time.Minute},
		{"it has waited for long", at(19 * time.Minute), at(time.Second), at(time.Hour), 0, time.Minute},
		{"it has waited for too long", at(20 * time.Minute), at(time.Second), at(time.Hour), 0, 0},
		{"one that was assigned later has started", at(5 * time.Minute), at(time.Second), at(time.Hour), timeout, timeout - time.Second},
		{"one that was assigned much later has", at(5 * time.Minute), at(time.Second), at(time.Hour), timeout + 1, 0},
		{"the clock was set back", at(5 * time.Minute), at(-time.Second), at(time.Hour), 0, 0},
		{"it was set back before the assignment", at(-10 * time.Minute), at(-11 * time.Minute), at(time.Hour), 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known := state.VirtualNode{Known: true, Confirmed: true, Started: state.Started{
				Last: tc.last, Assigned: tc.assigned.Add(tc.overtakenBy),
			}}
			pod := assignedPod(corev1.PodPending, assignedIn(tc.assigned.Sub(noon)))
			require.Equal(t, tc.want, Queued(pod, known, placement.Rules{PendingTimeout: timeout}, tc.leadsSince, noon))
		})
	}
}
