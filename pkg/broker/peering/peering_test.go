package peering_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering/peeringtest"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// A peer can have a VirtualNode made in its tenant namespace, with a kubeconfig of its own, and with the id of a
// provider.
func TestVirtualNodesOutsideOfTheProvidersTenantNamespaceDoNotCount(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	virtualNode := func(namespace, name string) client.Object {
		return &offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1"},
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		peeringtest.Tenant("p1"), virtualNode("liqo-tenant-p1", "own"),
		peeringtest.Tenant("evil"), virtualNode("liqo-tenant-evil", "forged"),
		virtualNode("default", "stray"),
	).Build()
	own, _, err := peering.VirtualNodes(t.Context(), c, labels.Everything(), "p1")
	require.NoError(t, err)
	require.Len(t, own, 1)
	require.Equal(t, "own", own[0].Name)
}
