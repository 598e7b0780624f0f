package view

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// The informers fill at the same time, each by its own list: that of the namespaces may be the last.
func TestATenantNamespaceThatIsReadLastCounts(t *testing.T) {
	f := newFed(Config{})
	f.sees(
		&offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "p1-slice"},
			Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1", Labels: map[string]string{"tier": "gold"}},
		},
		cluster("p1", func(pc *v1alpha1.ProviderCluster) {
			pc.Status.VirtualNodes = []v1alpha1.VirtualNodeStatus{{Name: "p1-slice", Ready: true}}
		}),
	)
	f.sees(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "liqo-tenant-p1", Labels: map[string]string{consts.TenantNamespaceLabel: "true", consts.RemoteClusterID: "p1"},
	}})
	shown, ok := f.Provider("p1", "")
	require.True(t, ok)
	require.Equal(t, "gold", shown.Attributes["tier"])
	list, err := f.Providers(ProviderQuery{Text: "gold"})
	require.NoError(t, err)
	require.Len(t, list.Items, 1, "and it is found by that")
}
