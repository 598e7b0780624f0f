package metadatasync

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/podpatch"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func TestWhatAnOwnerRemovedIsRemovedFromThePod(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "p", UID: "shadow", Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"note": "b"},
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(shadow).WithReturnManagedFields().Build()
	// As Liqo's ShadowPod controller creates it, of an earlier ShadowPod.
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "pod",
			Labels:      map[string]string{"app": "a", "tier": "front", "liqo.io/managed-by": "shadowpod"},
			Annotations: map[string]string{"note": "b", "gone": "c", v1alpha1.FilterAnnotation: "false"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "offloading.liqo.io/v1beta1", Kind: "ShadowPod", Name: "p", UID: "shadow", Controller: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	require.NoError(t, c.Create(t.Context(), pod, client.FieldOwner("shadow-pod")))
	// Keys that other writers set in this cluster.
	for key, value := range map[string]string{
		"mesh": "on", v1alpha1.DecisionAnnotation: "d", "gone": "changed here",
	} {
		before := pod.DeepCopy()
		pod.Annotations[key] = value
		require.NoError(t, c.Patch(t.Context(), pod, client.MergeFrom(before), client.FieldOwner("mesh")))
	}
	controller := New(Config{Client: c, Live: c, Writer: &podpatch.Writer{
		Client: c, Clock: clock.RealClock{}, Metrics: podpatch.NewMetrics(nil),
	}})
	_, err = controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
	require.NoError(t, err)

	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.Equal(t, map[string]string{"app": "a", "liqo.io/managed-by": "shadowpod"}, pod.Labels)
	require.Equal(t, map[string]string{
		"note": "b", "mesh": "on", v1alpha1.DecisionAnnotation: "d", "gone": "changed here",
	}, pod.Annotations)
}

func TestAPodOfAnotherShadowPodIsLeftAlone(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "p"}
	c := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&offloadingv1beta1.ShadowPod{ObjectMeta: meta}).WithReturnManagedFields().Build()
	pod := &corev1.Pod{ObjectMeta: *meta.DeepCopy()}
	pod.Labels = map[string]string{"app": "a"}
	require.NoError(t, c.Create(t.Context(), pod, client.FieldOwner("shadow-pod")))
	controller := New(Config{Client: c, Live: c}) // It writes nothing.
	_, err = controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
	require.NoError(t, err)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.Equal(t, map[string]string{"app": "a"}, pod.Labels)
}
