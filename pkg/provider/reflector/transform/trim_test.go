package transform

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

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

	// The UID of the pod is hidden from Liqo, and sent again with each update.
	shadow.Annotations, shadow.GenerateName = map[string]string{"a": "b", v1alpha1.PodUIDAnnotation: "uid"}, "of-a-provider"
	got, err = trimShadowPod(shadow)
	require.NoError(t, err)
	hidden := got.(*offloadingv1beta1.ShadowPod)
	require.Equal(t, map[string]string{"a": "b"}, hidden.Annotations)
	require.EqualValues(t, "uid", PodUID(hidden))
	full := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("x", 1<<18-10)}}}
	require.Equal(t, full.Annotations, WithPodUID(full, "uid").Annotations, "an API server accepts no more")
	sent := WithPodUID(hidden, PodUID(hidden))
	require.Equal(t, shadow.Annotations, sent.Annotations)
	require.Empty(t, sent.GenerateName)
	shadow.Annotations = nil
	got, err = trimShadowPod(shadow)
	require.NoError(t, err)
	require.Empty(t, PodUID(got.(*offloadingv1beta1.ShadowPod)), "what a provider writes there is no UID")
}

func TestLittleIsKeptOfAPodAmongAllOfItsNamespace(t *testing.T) {
	place := map[string]string{v1alpha1.InnerIPAnnotation: "10.0.0.2"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", UID: "uid", ResourceVersion: "7", Labels: map[string]string{"app": "a"},
			Annotations: map[string]string{"large": "value", v1alpha1.InnerIPAnnotation: "10.0.0.2"},
		},
		Spec:   corev1.PodSpec{NodeName: "liqo-broker", Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{PodIP: "10.0.0.1"},
	}
	given := pod.DeepCopy()
	kept, err := trimToPlace(pod)
	require.NoError(t, err)
	want := &corev1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Spec: corev1.PodSpec{NodeName: "liqo-broker"}}
	want.Annotations = place
	require.Equal(t, want, kept)
	require.Equal(t, given, pod, "the original stays as it is")
}

func TestLittleIsKeptOfALocalEvent(t *testing.T) {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", UID: "uid", ResourceVersion: "7", Labels: forge.ReflectionLabels(),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "a"}, Message: "large",
	}
	kept, err := trimLocalEvent(event)
	require.NoError(t, err)
	want := &corev1.Event{ObjectMeta: *event.ObjectMeta.DeepCopy()}
	want.ManagedFields = nil
	require.Equal(t, want, kept)
	require.True(t, forge.IsReflected(kept.(*corev1.Event)), "Liqo asks for it")
}

var transforms = map[string]cache.TransformFunc{
	"pod": trimPod, "remote pod": TrimRemotePod, "pod of the namespace": trimToPlace, "ShadowPod": trimShadowPod,
	"remote event": boundEvent, "local event": trimLocalEvent,
}

func TestTransformsPassWhatIsNoObject(t *testing.T) {
	tombstone := cache.DeletedFinalStateUnknown{Key: "ns/a"}
	for name, transform := range transforms {
		passed, err := transform(tombstone)
		require.NoError(t, err, name)
		require.Equal(t, tombstone, passed, name)
	}
}

// client-go transforms the objects of a watch-list twice. The second pass lost the UID of the pod that a ShadowPod was
// made from.
func TestTransformsDoNothingTheSecondTime(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "uid", Labels: map[string]string{"app": "a", "liqo.io/creator-user": "broker-0"},
		Annotations:   map[string]string{"a": "b", v1alpha1.PodUIDAnnotation: "of-the-pod", v1alpha1.InnerIPAnnotation: "10.0.0.2"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}
	long := strings.Repeat("x", 1<<16) + "\x1b"
	pod := &corev1.Pod{
		ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node", HostNetwork: true},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Message: long,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Message: long}},
		},
	}
	event := &corev1.Event{ObjectMeta: meta, Message: long, Reason: long, InvolvedObject: corev1.ObjectReference{FieldPath: long}}
	for name, obj := range map[string]any{
		"pod": pod, "remote pod": pod, "pod of the namespace": pod, "ShadowPod": &offloadingv1beta1.ShadowPod{ObjectMeta: meta},
		"remote event": event, "local event": event,
	} {
		once, err := transforms[name](obj)
		require.NoError(t, err, name)
		require.NotEqual(t, obj, once, name)
		twice, err := transforms[name](once)
		require.NoError(t, err, name)
		require.Equal(t, once, twice, name)
		if shadow, ok := twice.(*offloadingv1beta1.ShadowPod); ok {
			require.EqualValues(t, "of-the-pod", PodUID(shadow))
		}
	}
}
