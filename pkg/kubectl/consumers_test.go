package kubectl

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestConsumers(t *testing.T) {
	cpu := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
	c1 := &v1alpha1.ConsumerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c1"},
		Spec: v1alpha1.ConsumerClusterSpec{
			Weight: ptr.To[int32](3), Limits: cpu("20"),
			Guaranteed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourceCPU: resource.MustParse("8")},
		},
		Status: v1alpha1.ConsumerClusterStatus{
			Share: "0.125", DominantResource: corev1.ResourceCPU, Pods: 4, Used: cpu("11"), Granted: cpu("10"), Borrowed: cpu("2"),
			Reclaimed: cpu("1"),
		},
	}
	s, screen := at(t, noFaults(), c1, &v1alpha1.ConsumerCluster{ObjectMeta: metav1.ObjectMeta{Name: "new"}})

	require.NoError(t, s.GetConsumers(t.Context(), Query{AllNamespaces: true}))
	require.Equal(t, []string{
		"NAME WEIGHT SHARE PODS CPU MEMORY AGE",
		"c1 3 0.125 4 11/10 0/0 <unknown>",
		"new 1 <unknown> 0 <unknown> <unknown> <unknown>",
	}, screen.lines())

	require.NoError(t, s.GetConsumers(t.Context(), Query{Names: []string{"c1"}, Output: outputWide, NoHeaders: true}))
	require.Equal(t, []string{
		"c1 3 0.125 4 11/10 0/0 <unknown> cpu cpu=8,memory=32Gi cpu=20 cpu=2 <none> cpu=1",
	}, screen.lines())

	require.NoError(t, s.GetConsumers(t.Context(), Query{Names: []string{"new"}, Output: outputName}))
	require.Equal(t, []string{"consumercluster.brokering.liqo.io/new"}, screen.lines())
	require.ErrorContains(t, s.GetConsumers(t.Context(), Query{Names: []string{"none"}}), `"none" not found`)
}
