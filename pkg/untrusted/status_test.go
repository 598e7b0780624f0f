package untrusted

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func ready(message string) corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: message}
}

func TestTheStatusOfAPodIsBounded(t *testing.T) {
	long, kept := strings.Repeat("line\n", 100<<10), strings.Repeat("line\n", 4096/5)
	many := make([]corev1.ContainerStatus, 5000)
	for i := range many {
		many[i] = corev1.ContainerStatus{Name: fmt.Sprint("c", i), Image: strings.Repeat("i", 100)}
	}
	terminated := func(message string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}}}
	}
	for name, tc := range map[string]struct {
		status corev1.PodStatus
		check  func(t *testing.T, got corev1.PodStatus)
	}{
		"the longest message of a kubelet stays, in its lines": {
			corev1.PodStatus{Conditions: []corev1.PodCondition{ready(kept)}, ContainerStatuses: terminated(kept)},
			func(t *testing.T, got corev1.PodStatus) {
				require.Equal(t, kept, got.Conditions[0].Message)
				require.Equal(t, kept, got.ContainerStatuses[0].State.Terminated.Message)
			},
		},
		"longer texts are cut": {
			corev1.PodStatus{
				Message: long, Reason: long, Conditions: []corev1.PodCondition{ready(long)}, ContainerStatuses: terminated(long),
				InitContainerStatuses: []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: long, Message: long},
				}}},
			},
			func(t *testing.T, got corev1.PodStatus) {
				require.Less(t, got.Size(), 8*maxStatusText)
				require.Equal(t, corev1.ConditionTrue, got.Conditions[0].Status)
				require.True(t, strings.HasPrefix(got.ContainerStatuses[0].State.Terminated.Message, "line\nline\n"))
			},
		},
		"a list of conditions is cut": {
			corev1.PodStatus{Phase: corev1.PodRunning, Conditions: make([]corev1.PodCondition, 5000)},
			func(t *testing.T, got corev1.PodStatus) {
				require.Len(t, got.Conditions, maxConditions)
				require.Equal(t, corev1.PodRunning, got.Phase)
			},
		},
		"what cannot be shown is not": {
			corev1.PodStatus{
				Phase: "Nonsense", Reason: "\x1b[2Ja", Conditions: []corev1.PodCondition{ready("b\u202ec\n\td")},
				ContainerStatuses: terminated("\u200be"), NominatedNodeName: "f\rg", QOSClass: "h\x00i",
				EphemeralContainerStatuses: []corev1.ContainerStatus{{
					Name: "j\x07", Image: "k\u202e", ImageID: "l\u009b", ContainerID: "m\ufeff",
				}},
			},
			func(t *testing.T, got corev1.PodStatus) {
				require.Equal(t, corev1.PodUnknown, got.Phase)
				require.Equal(t, " [2Ja", got.Reason)
				require.Equal(t, "b c\n\td", got.Conditions[0].Message)
				require.Equal(t, " e", got.ContainerStatuses[0].State.Terminated.Message)
				require.Equal(t, "f g", got.NominatedNodeName)
				require.EqualValues(t, "h i", got.QOSClass)
				require.Equal(t, []corev1.ContainerStatus{{Name: "j ", Image: "k ", ImageID: "l ", ContainerID: "m "}},
					got.EphemeralContainerStatuses)
			},
		},
		"of a status that is too large there is left what services need": {
			corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: many, Conditions: []corev1.PodCondition{ready("")},
			},
			func(t *testing.T, got corev1.PodStatus) {
				require.Equal(t, corev1.PodStatus{
					Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
					Reason: "StatusTooLarge", Message: "the status from the provider cluster is too large, so only some fields are shown",
					Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "StatusTooLarge"}},
				}, got)
			},
		},
		"an address that is none is not left": {
			corev1.PodStatus{PodIP: long, Phase: corev1.PodPhase(long)},
			func(t *testing.T, got corev1.PodStatus) {
				require.Empty(t, got.PodIP)
				require.Less(t, got.Size(), 300)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.status.DeepCopy()
			got := PodStatus(&tc.status)
			require.Equal(t, *before, tc.status, "the original stays as it is")
			tc.check(t, *got)
		})
	}
}
