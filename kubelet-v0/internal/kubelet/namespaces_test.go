package kubelet

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	virtualkubeletv1alpha1 "github.com/liqotech/liqo/apis/virtualkubelet/v1alpha1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
)

// The remote cluster writes the status of a map in its own cluster.
func TestOnlyNamespacesThatAreOffloadedAreSeen(t *testing.T) {
	accepted := func(remote string) virtualkubeletv1alpha1.RemoteNamespaceStatus {
		return virtualkubeletv1alpha1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: virtualkubeletv1alpha1.MappingAccepted}
	}
	terminating := virtualkubeletv1alpha1.RemoteNamespaceStatus{
		RemoteNamespace: "old-home", Phase: virtualkubeletv1alpha1.MappingTerminating,
	}
	ours := &virtualkubeletv1alpha1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-p1", Name: "p1"},
		Spec: virtualkubeletv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{
			"shop": "shop-home", "tenant-p1": "x", "liqo-tenant-p2": "x",
		}},
		Status: virtualkubeletv1alpha1.NamespaceMapStatus{CurrentMapping: map[string]virtualkubeletv1alpha1.RemoteNamespaceStatus{
			"shop": accepted("shop-home"), "kube-system": accepted("x"), "old": terminating,
			"tenant-p1": accepted("x"), "liqo-tenant-p2": accepted("x"),
		}},
	}
	theirs := ours.DeepCopy()
	theirs.Name, theirs.Labels = "home", map[string]string{"liqo.io/originID": "p1"}
	want := map[string]map[string]virtualkubeletv1alpha1.RemoteNamespaceStatus{
		"p1": {"shop": accepted("shop-home"), "old": terminating}, "home": {"old": terminating},
	}
	fake := liqofake.NewSimpleClientset(ours, theirs)
	maps := offloading{fake}.VirtualkubeletV1alpha1().NamespaceMaps("tenant-p1")

	list, err := maps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 2)
	for i := range list.Items {
		require.Equal(t, want[list.Items[i].Name], list.Items[i].Status.CurrentMapping)
	}
	changes, err := maps.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer changes.Stop()
	for _, m := range []*virtualkubeletv1alpha1.NamespaceMap{ours, theirs} {
		_, err = fake.VirtualkubeletV1alpha1().NamespaceMaps("tenant-p1").UpdateStatus(t.Context(), m, metav1.UpdateOptions{})
		require.NoError(t, err)
		seen := <-changes.ResultChan()
		require.Equal(t, want[m.Name], seen.Object.(*virtualkubeletv1alpha1.NamespaceMap).Status.CurrentMapping)
	}
}
