package lens

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
)

// The peer is a consumer as well, and has offloaded a namespace to this cluster: its map is in the same tenant namespace.
func TestOnlyMapsForTheRemoteClusterAreSeen(t *testing.T) {
	namespaceMap := func(name, destination string) runtime.Object {
		return &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo-tenant-p1", Name: name,
			Labels: map[string]string{"liqo.io/remote-cluster-id": "p1", "liqo.io/remoteID": destination},
		}}
	}
	fake := liqofake.NewSimpleClientset(namespaceMap("ours", "p1"), namespaceMap("theirs", "broker"))
	maps := Destined(fake, "p1").OffloadingV1beta1().NamespaceMaps("liqo-tenant-p1")
	for _, selector := range []string{"", "liqo.io/remote-cluster-id=p1"} {
		list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		require.Equal(t, "ours", list.Items[0].Name)
	}
	list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "liqo.io/remote-cluster-id=p2"})
	require.NoError(t, err)
	require.Empty(t, list.Items)

	_, err = maps.Watch(t.Context(), metav1.ListOptions{LabelSelector: "a=b"})
	require.NoError(t, err)
	actions := fake.Actions()
	watched := actions[len(actions)-1].(k8stesting.WatchAction).GetWatchRestrictions().Labels
	require.Equal(t, "a=b,liqo.io/remoteID=p1", watched.String())
}
