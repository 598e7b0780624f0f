package podpatch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestAChangeFitsTheLimitOfAnnotations(t *testing.T) {
	const most = validation.TotalAnnotationSizeLimitB
	const decision, failover = v1alpha1.DecisionAnnotation, v1alpha1.FailoverAnnotation
	from := map[string]any{v1alpha1.MovingFromAnnotation: "q1", decision: "moving"}
	less := map[string]any{v1alpha1.MovingFromAnnotation: "q1", decision: nil}
	for name, tc := range map[string]struct {
		annotations  map[string]string
		change, want map[string]any
	}{
		"there is space":            {map[string]string{"a": "x"}, from, from},
		"none for what is optional": {map[string]string{"a": strings.Repeat("x", most-60)}, from, less},
		"only because of what is old": {
			map[string]string{"a": strings.Repeat("x", most-60), decision: strings.Repeat("y", 40)}, from, less,
		},
		"none at all": {
			map[string]string{"a": strings.Repeat("x", most-1000), "b": strings.Repeat("x", 980), failover: "Never"},
			from,
			map[string]any{v1alpha1.MovingFromAnnotation: "q1", decision: nil, "a": nil},
		},
		"a removal needs none": {map[string]string{"a": strings.Repeat("x", most-1)}, map[string]any{"b": nil}, map[string]any{"b": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			change := map[string]any{}
			for key, value := range tc.change {
				change[key] = value
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}}
			require.Equal(t, map[string]any{"annotations": tc.want}, Fit(pod, map[string]any{"annotations": change}, decision))
		})
	}
}
