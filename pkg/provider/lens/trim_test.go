package lens

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestTrimmedObjectsLeaveTheOriginalAlone(t *testing.T) {
	meta := metav1.ObjectMeta{
		Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		Labels: map[string]string{"app": "a", "liqo.io/creator-user": "broker-0"},
	}
	pod := &corev1.Pod{ObjectMeta: meta}
	got, err := trimPod(pod)
	require.NoError(t, err)
	require.Empty(t, got.(*corev1.Pod).ManagedFields)
	require.Equal(t, meta.Labels, got.(*corev1.Pod).Labels)
	require.Len(t, pod.ManagedFields, 1)

	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: *meta.DeepCopy()}
	got, err = trimShadowPod(shadow)
	require.NoError(t, err)
	require.Empty(t, got.(*offloadingv1beta1.ShadowPod).ManagedFields)
	require.Equal(t, map[string]string{"app": "a"}, got.(*offloadingv1beta1.ShadowPod).Labels)
	require.Equal(t, meta, shadow.ObjectMeta)
	require.Empty(t, PodUID(got.(*offloadingv1beta1.ShadowPod)))

	// The UID of the pod is hidden from Liqo, and is sent again with each update.
	shadow.Annotations, shadow.GenerateName = map[string]string{"a": "b", v1alpha1.PodUIDAnnotation: "uid"}, "of-a-provider"
	got, err = trimShadowPod(shadow)
	require.NoError(t, err)
	hidden := got.(*offloadingv1beta1.ShadowPod)
	require.Equal(t, map[string]string{"a": "b"}, hidden.Annotations)
	require.EqualValues(t, "uid", PodUID(hidden))
	sent := WithPodUID(hidden, PodUID(hidden))
	require.Equal(t, shadow.Annotations, sent.Annotations)
	require.Empty(t, sent.GenerateName)
	shadow.Annotations = nil
	got, err = trimShadowPod(shadow)
	require.NoError(t, err)
	require.Empty(t, PodUID(got.(*offloadingv1beta1.ShadowPod)), "what a provider writes there is no UID")
}
