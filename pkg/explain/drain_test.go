package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestAPreviewOfADrainCountsThePodsBefore(t *testing.T) {
	claimed := func(pod *corev1.Pod) *corev1.Pod {
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
		return pod
	}
	ended := onBroker(cpuPod("e", "1"), "cheap")
	ended.Status.Phase = corev1.PodSucceeded
	keep := []client.Object{
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "data"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		},
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{
				Name: "pv", Labels: map[string]string{v1alpha1.VolumeLabel: "true", v1alpha1.ProviderLabel: "cheap"},
				Annotations: map[string]string{v1alpha1.MadeAtAnnotation: "cheap"},
			},
			Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: types.UID("data")}},
		},
	}
	c := federationOf(t, append(keep,
		onBroker(cpuPod("a", "3"), "cheap"), onBroker(cpuPod("b", "3"), "cheap"), claimed(onBroker(cpuPod("c", "1"), "cheap")),
		onBroker(cpuPod("d", "3"), "cheap"), ended, onBroker(cpuPod("f", "1"), "dear"))...)
	departures, err := Drain(t.Context(), c, "broker", []string{"cheap"}, time.Now())
	require.NoError(t, err)
	outcomes := map[string]Outcome{}
	to := map[string]bool{}
	for _, d := range departures {
		require.Equal(t, "cheap", d.From)
		require.Equal(t, d.Outcome == Moves, d.To != "", d.Pod)
		outcomes[d.Pod] = d.Outcome
		to[d.To] = true
	}
	require.Equal(t, map[string]Outcome{"ns/a": Moves, "ns/b": Moves, "ns/c": Stays, "ns/d": Waits}, outcomes)
	require.Equal(t, map[string]bool{"dear": true, "unpriced": true, "": true}, to)
	require.Contains(t, departures[2].Message, "volume data is at provider cheap")
	require.Contains(t, departures[3].Message, "insufficient cpu")

	var pc v1alpha1.ProviderCluster
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "cheap"}, &pc))
	require.False(t, pc.Spec.Drain, "nothing is changed")
	_, err = Drain(t.Context(), c, "broker", []string{"absent"}, time.Now())
	require.True(t, kerrors.IsNotFound(err))
}
