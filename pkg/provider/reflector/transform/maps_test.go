package transform

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
)

// The peer is also a consumer and has offloaded a namespace to this cluster: its map is in the same tenant namespace.
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

// The remote cluster writes the status of a map in its own cluster, and Liqo starts to reflect each namespace that is
// Accepted there.
func TestOnlyNamespacesThatAreOffloadedAreSeen(t *testing.T) {
	accepted := func(remote string) offloadingv1beta1.RemoteNamespaceStatus {
		return offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: offloadingv1beta1.MappingAccepted}
	}
	terminating := offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "old-home", Phase: offloadingv1beta1.MappingTerminating}
	m := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "p1", Labels: map[string]string{"liqo.io/remoteID": "p1"}},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{
			"shop": "shop-home", "other": "other-home", "liqo-tenant-p2": "x", "liqo-tenant-p1": "x",
		}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"shop": accepted("shop-home"), "other": accepted("not-as-asked"), "kube-system": accepted("x"), "old": terminating,
			"liqo-tenant-p2": accepted("x"), "liqo-tenant-p1": accepted("x"), "unnamed": accepted(""),
		}},
	}
	whole := m.DeepCopy()
	want := map[string]offloadingv1beta1.RemoteNamespaceStatus{"shop": accepted("shop-home"), "old": terminating}
	fake := liqofake.NewSimpleClientset(m)
	maps := Destined(fake, "p1").OffloadingV1beta1().NamespaceMaps("liqo-tenant-p1")

	list, err := maps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, want, list.Items[0].Status.CurrentMapping)

	changes, err := maps.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer changes.Stop()
	_, err = fake.OffloadingV1beta1().NamespaceMaps("liqo-tenant-p1").UpdateStatus(t.Context(), m, metav1.UpdateOptions{})
	require.NoError(t, err)
	seen := <-changes.ResultChan()
	require.Equal(t, want, seen.Object.(*offloadingv1beta1.NamespaceMap).Status.CurrentMapping)
	require.Equal(t, whole, m, "an object that others have is not changed")
}
