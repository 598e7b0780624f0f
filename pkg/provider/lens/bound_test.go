package lens

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
)

func TestTheStatusOfARemotePodIsTrimmed(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: "Nonsense", Reason: "a\x1bb"}}
	got, err := trimRemotePod(pod)
	require.NoError(t, err)
	require.Equal(t, corev1.PodUnknown, got.(*corev1.Pod).Status.Phase)
	require.Equal(t, corev1.PodPhase("Nonsense"), pod.Status.Phase, "the original stays as it is")
}

func TestTheTextsOfARemoteEventAreCut(t *testing.T) {
	event := &corev1.Event{Message: strings.Repeat("x", 1<<20), Reason: strings.Repeat("x", 1<<20)}
	got, err := boundEvent(event)
	require.NoError(t, err)
	require.Len(t, got.(*corev1.Event).Message, distrust.MaxText)
	require.Len(t, got.(*corev1.Event).Reason, 128)
	require.Len(t, event.Message, 1<<20)

	got, err = boundEvent(&corev1.Event{Message: "a\nb\u202ec"})
	require.NoError(t, err)
	require.Equal(t, "a b c", got.(*corev1.Event).Message)
}
