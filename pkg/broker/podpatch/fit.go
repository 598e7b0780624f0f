package podpatch

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Fit returns a change of labels and annotations, for Patch, that the API server does not refuse because of the size of
// all annotations (ValidateAnnotationsSize in apimachinery): a consumer, who may fill them, would keep its pod at a
// provider that is drained or lost. If need be, the optional annotations are removed, and then the largest others that
// the change does not write.
func Fit(pod *corev1.Pod, change map[string]any, optional ...string) map[string]any {
	annotations, _ := change["annotations"].(map[string]any)
	excess := -validation.TotalAnnotationSizeLimitB
	for key, value := range pod.Annotations {
		if _, changed := annotations[key]; !changed {
			excess += len(key) + len(value)
		}
	}
	for key, value := range annotations {
		if text, written := value.(string); written {
			excess += len(key) + len(text)
		}
	}
	remove := func(key, value string) {
		if excess > 0 && value != "" {
			excess -= len(key) + len(value)
			annotations[key] = nil
		}
	}
	for _, key := range optional {
		value, changed := annotations[key].(string)
		if !changed && !has(annotations, key) {
			value = pod.Annotations[key]
		}
		remove(key, value)
	}
	for _, key := range largestOthers(pod, annotations) {
		remove(key, pod.Annotations[key])
	}
	return change
}

func has(annotations map[string]any, key string) bool {
	_, exists := annotations[key]
	return exists
}

// kept returns the annotations without which a pod would be moved, or waited for, by mistake.
func kept() []string {
	return append(v1alpha1.RootAnnotations(), v1alpha1.AssignedAtAnnotation, v1alpha1.ReleasedAnnotation, v1alpha1.PodUIDAnnotation,
		v1alpha1.MovingFromAnnotation, v1alpha1.MovingFromProviderAnnotation, v1alpha1.UnreachableAnnotation, v1alpha1.FailoverAnnotation)
}

// largestOthers returns the other annotations of a pod that are not changed, by size.
func largestOthers(pod *corev1.Pod, changed map[string]any) []string {
	var others []string
	keep := kept()
	for key := range pod.Annotations {
		if !has(changed, key) && !slices.Contains(keep, key) {
			others = append(others, key)
		}
	}
	slices.SortFunc(others, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(pod.Annotations[b]), len(pod.Annotations[a])), cmp.Compare(a, b))
	})
	return others
}
