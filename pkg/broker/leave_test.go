package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // A constant, were there any of time.

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

func deleting(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: noon} }

func refused(virtualNode string, at time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: v1alpha1.ConditionRefused, Status: corev1.ConditionTrue, Reason: "Forbidden",
			Message: virtualNode + ": peering cpu quota usage exceeded", LastTransitionTime: metav1.NewTime(at),
		}}
	}
}

func TestWhyLeave(t *testing.T) {
	usual := placement.Rules{Failover: v1alpha1.FailoverMove, FailoverAfter: time.Minute, PendingTimeout: 10 * time.Minute}
	never := usual
	never.Failover = v1alpha1.FailoverNever
	impatient := usual
	impatient.PendingTimeout = 4 * time.Minute
	patient := usual
	patient.PendingTimeout = 0
	lost := func(ago time.Duration) situation {
		return situation{known: true, lost: noon.Add(-ago), believed: noon.Add(-ago)}
	}
	suspended := situation{known: true, lost: noon.Add(-time.Hour), believed: noon.Add(-time.Hour), suspended: true}
	again := situation{known: true, lost: noon.Add(-time.Hour), believed: noon.Add(-45 * time.Second)}
	fine := situation{known: true}

	for _, tc := range []struct {
		name  string
		pod   *corev1.Pod
		s     situation
		r     placement.Rules
		want  moveReason
		later time.Duration
	}{
		{"a running pod stays", assignedPod(corev1.PodRunning), fine, usual, stay, 0},
		{"a pod of a lost provider waits until failoverAfter", assignedPod(corev1.PodRunning), lost(45 * time.Second), usual, stay, 15 * time.Second},
		{"then it moves", assignedPod(corev1.PodRunning), lost(time.Minute), usual, moveUnreachable, 0},
		{"unless it never fails over", assignedPod(corev1.PodRunning), lost(time.Hour), never, stay, 0},
		{"or the broker suspects itself", assignedPod(corev1.PodRunning), suspended, usual, stay, suspicionCheck},
		{"whose end takes a pod out of its Services also if it never fails over", assignedPod(corev1.PodRunning), suspended, never, stay, suspicionCheck},
		{"what was so while the broker suspected itself does not count", assignedPod(corev1.PodRunning), again, usual, stay, 15 * time.Second},
		{"or it is being deleted", assignedPod(corev1.PodRunning, deleting), lost(time.Hour), usual, stay, 0},
		{"or it is done", assignedPod(corev1.PodSucceeded), lost(time.Hour), usual, stay, 0},
		{"a failed pod is done too", assignedPod(corev1.PodFailed), situation{}, usual, stay, 0},
		{"a drained provider is emptied", assignedPod(corev1.PodRunning), situation{known: true, draining: true}, usual, moveDrained, 0},
		{"also of pods that never fail over, which are moved in turn", assignedPod(corev1.PodRunning), situation{known: true, draining: true}, never, moveDrained, 0},
		{"a refused pod goes at once", assignedPod(corev1.PodPending, refused("q1", noon.Add(-time.Minute))), fine, usual, moveRefused, 0},
		{"a refusal by another slice is old news", assignedPod(corev1.PodPending, refused("q2", noon.Add(-time.Minute))), fine, usual, stay, 5 * time.Minute},
		{"so is one from before it was assigned", assignedPod(corev1.PodPending, refused("q1", noon.Add(-time.Hour))), fine, usual, stay, 5 * time.Minute},
		{"a pending pod waits until its timeout", assignedPod(corev1.PodPending), fine, usual, stay, 5 * time.Minute},
		{"then it goes", assignedPod(corev1.PodPending), fine, impatient, movePending, 0},
		{"with no timeout it waits for ever", assignedPod(corev1.PodPending), fine, patient, stay, 0},
		{"a pending pod of a lost provider is not judged", assignedPod(corev1.PodPending), lost(time.Second), impatient, stay, 59 * time.Second},
		{"it does not end what is being deleted either", assignedPod(corev1.PodRunning, deleting), situation{}, usual, moveNoVirtualNode, 0},
		{"a VirtualNode that is gone serves nobody", assignedPod(corev1.PodRunning), situation{}, usual, moveNoVirtualNode, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reason, later := whyLeave(tc.pod, tc.s, tc.r, noon)
			require.Equal(t, tc.want, reason)
			require.Equal(t, tc.later, later)
		})
	}
}

func TestSuspicious(t *testing.T) {
	ago := func(minutes ...int) []time.Time {
		var out []time.Time
		for _, m := range minutes {
			out = append(out, noon.Add(-time.Duration(m)*time.Minute))
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		outages []time.Time
		total   int
		want    bool
	}{
		{"nobody is lost", nil, 3, false},
		{"one of two is an outage", ago(1), 2, false},
		{"the only one is an outage", ago(1), 1, false},
		{"two of three at once is us", ago(1, 1), 3, true},
		{"two of three, one after the other, are two outages", ago(1, 30), 3, false},
		{"two of five is a bad day", ago(1, 1), 5, false},
		{"an old outage does not count as there", ago(60, 1, 1), 4, true},
		{"all at once is us", ago(1, 1, 1, 1), 4, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, suspicious(tc.outages, tc.total, time.Minute))
		})
	}
}

// TestSuspicionDoesNotPass: as long as those that vanished together are gone, the broker goes on suspecting itself,
// whatever else happens and however much time passes; and a single outage is never suspicious.
func TestSuspicionDoesNotPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(2, 20).Draw(t, "total")
		lost := rapid.IntRange(1, total).Draw(t, "lost")
		var outages []time.Time
		for range lost {
			outages = append(outages, noon.Add(-time.Duration(rapid.IntRange(0, 3600).Draw(t, "ago"))*time.Second))
		}
		is := suspicious(outages, total, time.Minute)
		var later []time.Time
		for _, o := range outages {
			later = append(later, o.Add(-time.Hour))
		}
		require.Equal(t, is, suspicious(later, total, time.Minute))
		require.False(t, suspicious(outages[:1], total, time.Minute))
		if is && lost < total {
			require.True(t, suspicious(append(outages, noon), total, time.Minute), "one more of those that were there vanishes")
		}
	})
}
