package lens

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
)

func TestTheStatusOfARemotePodIsTrimmed(t *testing.T) {
	pod := &corev1.Pod{
		Spec:   corev1.PodSpec{NodeName: "node", HostNetwork: true},
		Status: corev1.PodStatus{Phase: "Nonsense", Reason: "a\x1bb"},
	}
	got, err := trimRemotePod(pod)
	require.NoError(t, err)
	require.Equal(t, corev1.PodUnknown, got.(*corev1.Pod).Status.Phase)
	require.Equal(t, corev1.PodSpec{HostNetwork: true}, got.(*corev1.Pod).Spec)
	require.Equal(t, corev1.PodPhase("Nonsense"), pod.Status.Phase, "the original stays as it is")
	require.Equal(t, "node", pod.Spec.NodeName)
}

func TestTheTextsOfARemoteEventAreCut(t *testing.T) {
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, 1)}, Message: strings.Repeat("x", 1<<20), Reason: strings.Repeat("x", 1<<20)}
	got, err := boundEvent(event)
	require.NoError(t, err)
	require.Len(t, got.(*corev1.Event).Message, distrust.MaxText)
	require.Len(t, got.(*corev1.Event).Reason, 128)
	require.Empty(t, got.(*corev1.Event).ManagedFields)
	require.Len(t, event.Message, 1<<20)
	require.Len(t, event.ManagedFields, 1)

	got, err = boundEvent(&corev1.Event{Message: "a\nb\u202ec"})
	require.NoError(t, err)
	require.Equal(t, "a b c", got.(*corev1.Event).Message)
}
