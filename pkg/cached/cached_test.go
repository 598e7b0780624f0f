package cached

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// fat is a pod with every field long that a tenant can make long.
func fat(annotation string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "fat", Labels: map[string]string{"app": "a"},
			Annotations: map[string]string{
				annotation: strings.Repeat("\x01", 250_000), "example.com/team": "a",
				v1alpha1.AssignedAtAnnotation: "2026-03-01T12:00:00Z", "liqo.io/managed-by": "shadowpod",
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "broker", Volumes: []corev1.Volume{{Name: strings.Repeat("v", 1000)}}, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("e", 500_000)}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			}},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: v1alpha1.ConditionAssigned, Message: strings.Repeat("m", 1_000_000),
		}}},
	}
}

func TestAPodKeepsWhatIsRead(t *testing.T) {
	for _, annotation := range []string{
		"example.com/x", v1alpha1.PolicyAnnotation, v1alpha1.FailoverAnnotation, v1alpha1.FilterAnnotation,
		v1alpha1.TriesAnnotation, "liqo.io/x",
	} {
		before := fat(annotation)
		kept, err := Pod(before.DeepCopy())
		require.NoError(t, err)
		pod := kept.(*corev1.Pod)
		require.LessOrEqual(t, pod.Size(), maxTries+2*untrusted.MaxText, annotation)
		require.Equal(t, resources.PodRequests(&before.Spec), resources.PodRequests(&pod.Spec))
		require.Len(t, pod.Annotations, len(before.Annotations), "keys stay: those that a ShadowPod lacks are removed from the pod")
		require.Equal(t, "a", pod.Annotations["example.com/team"])
		require.Equal(t, v1alpha1.AssignedAt(before), v1alpha1.AssignedAt(pod))
		require.Equal(t, "broker", pod.Spec.NodeName)
		require.Equal(t, corev1.RestartPolicyNever, pod.Spec.RestartPolicy)
		require.NotEqual(t, before.Annotations[annotation][:10], pod.Annotations[annotation], "it is not taken for a short one")
		if annotation == "example.com/x" {
			require.Greater(t, len(pod.Annotations[annotation]), values.MaxText, "expressions do not see it, as before")
		}
	}
	long := fat(v1alpha1.FilterAnnotation)
	kept, err := Pod(long)
	require.NoError(t, err)
	_, err = cel.NewFilter(kept.(*corev1.Pod).Annotations[v1alpha1.FilterAnnotation])
	require.ErrorContains(t, err, "more than 4096")
}

func TestConstraintsThatAreTooLargeAreDropped(t *testing.T) {
	withTerms := func(count int) *corev1.Pod {
		required := &corev1.NodeSelector{}
		for range count {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "example.com/key", Operator: corev1.NodeSelectorOpExists}},
			})
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: required,
		}}}}
		pod.Annotations = map[string]string{TooLargeAnnotation: "by its owner"}
		return pod
	}
	small, err := Pod(withTerms(200))
	require.NoError(t, err)
	require.NotNil(t, small.(*corev1.Pod).Spec.Affinity)
	require.NotContains(t, small.(*corev1.Pod).Annotations, TooLargeAnnotation)
	large, err := Pod(withTerms(2000))
	require.NoError(t, err)
	require.Nil(t, large.(*corev1.Pod).Spec.Affinity)
	require.Equal(t, "true", large.(*corev1.Pod).Annotations[TooLargeAnnotation], "the pod is not assigned")
}

func TestManyAnnotationsAreBoundedTogether(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	for i := range 250 {
		pod.Annotations[fmt.Sprintf("example.com/%03d", i)] = strings.Repeat("a", 1000)
	}
	_, err := Pod(pod)
	require.NoError(t, err)
	seen := 0
	for _, value := range pod.Annotations {
		if len(value) <= values.MaxText {
			seen += len(value)
		}
	}
	require.Equal(t, 16_000, seen)
	require.Equal(t, strings.Repeat("a", 1000), pod.Annotations["example.com/000"], "those that come first by their keys stay")
}

func TestOfShadowPodsTheKeysStay(t *testing.T) {
	shadow := &metav1.PartialObjectMetadata{ObjectMeta: fat("example.com/x").ObjectMeta}
	_, err := Keys(shadow)
	require.NoError(t, err)
	require.Len(t, shadow.Annotations, 4)
	require.Empty(t, shadow.Annotations["example.com/x"])
	require.Equal(t, "a", shadow.Labels["app"])
}

// 200 pods fit into any grant that has 200 pods.
func TestTwoHundredFatPodsTakeLittleMemory(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	take := func(transform func(any) (any, error)) int64 {
		before := heap()
		pods, shadows := make([]any, 200), make([]any, 200)
		for i := range pods {
			pod := fat(v1alpha1.PolicyAnnotation)
			pods[i], _ = transform(pod)
			shadows[i] = &metav1.PartialObjectMetadata{ObjectMeta: fat(v1alpha1.PolicyAnnotation).ObjectMeta}
			if _, trims := pods[i].(*corev1.Pod); trims && pods[i].(*corev1.Pod).Spec.Volumes == nil {
				shadows[i], _ = Keys(shadows[i])
			}
		}
		took := heap() - before
		runtime.KeepAlive(pods)
		runtime.KeepAlive(shadows)
		return took
	}
	whole := take(func(in any) (any, error) { return in, nil })
	trimmed := take(Pod)
	t.Logf("200 pods and ShadowPods take %d KiB, %d KiB untrimmed", trimmed>>10, whole>>10)
	require.Less(t, trimmed, int64(4<<20))
}
