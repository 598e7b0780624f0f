package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestWhatAShadowPodTellsOfAPodThatIsRemoved(t *testing.T) {
	for name, tc := range map[string]struct {
		phase  corev1.PodPhase
		policy corev1.RestartPolicy
		ended  bool
	}{
		"a Job's that completed":                      {corev1.PodSucceeded, corev1.RestartPolicyNever, true},
		"a Job's that failed":                         {corev1.PodFailed, corev1.RestartPolicyNever, true},
		"a Job's that completed, with retries":        {corev1.PodSucceeded, corev1.RestartPolicyOnFailure, true},
		"a Job's whose node was drained":              {corev1.PodFailed, corev1.RestartPolicyOnFailure, false},
		"a server's whose node was drained":           {corev1.PodFailed, corev1.RestartPolicyAlways, false},
		"a server's that ended well at such a drain":  {corev1.PodSucceeded, corev1.RestartPolicyAlways, false},
		"one that runs":                               {corev1.PodRunning, corev1.RestartPolicyNever, false},
		"one of which no pod was made yet":            {"", corev1.RestartPolicyNever, false},
		"one without a policy, of a hostile provider": {corev1.PodSucceeded, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			status := EndOfShadowPod(tc.phase, tc.policy)
			require.Equal(t, tc.ended, status != nil)
			if tc.ended {
				require.Equal(t, tc.phase, status.Phase)
			}
		})
	}
}

func TestAPodWhoseContainersHaveEndedHasStopped(t *testing.T) {
	ended := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	runs := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	for name, tc := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"all have ended": {corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{ended, ended}}, true},
		"one runs":       {corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{ended, runs}}, false},
		"a sidecar runs": {corev1.PodStatus{
			Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{ended},
			InitContainerStatuses: []corev1.ContainerStatus{runs},
		}, false},
		"the phase is not terminal": {
			corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{ended}}, false,
		},
		"nothing is known of them": {corev1.PodStatus{Phase: corev1.PodFailed}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, Stopped(&tc.status)) })
	}
}
