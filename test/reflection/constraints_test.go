package reflection

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
)

// TestConstraintsAreSentToTheNextCluster checks the annotation on the ShadowPod, also after Liqo has updated it.
func TestConstraintsAreSentToTheNextCluster(t *testing.T) {
	w := newWorld(t)
	w.run(t.Context())
	local := w.create(pod("web", func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "vnode", "example.com/disk": "ssd"}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpIn, Values: []string{"virtual-node"}},
					{Key: corev1.LabelTopologyRegion, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"us"}},
				},
			}}},
		}}
	}))
	sent := func() *constraints.Travelling {
		t.Helper()
		found, err := constraints.Parse(w.shadow("web").Annotations[v1alpha1.ConstraintsAnnotation])
		require.NoError(t, err)
		return found
	}
	first := sent()
	require.Equal(t, map[string]string{"example.com/disk": "ssd"}, first.NodeSelector, "the host is this cluster's Node")
	require.Equal(t, []corev1.NodeSelectorRequirement{{
		Key: corev1.LabelTopologyRegion, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"us"},
	}}, first.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions)

	changed := local.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "example.com/version", "2")
	require.NoError(t, w.local.Tracker().Update(podsResource, changed, "ns"))
	require.Eventually(t, func() bool { return w.shadow("web").Annotations["example.com/version"] == "2" }, patience, tick)
	require.Equal(t, first, sent())

	w.create(pod("by-hand", func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.ConstraintsAnnotation: `{"nodeSelector":{"example.com/disk":"nvme"}}`}
	}))
	require.JSONEq(t, `{"nodeSelector":{"example.com/disk":"nvme"}}`, w.shadow("by-hand").Annotations[v1alpha1.ConstraintsAnnotation])

	w.create(pod("plain"))
	require.NotContains(t, w.shadow("plain").Annotations, v1alpha1.ConstraintsAnnotation)
}
