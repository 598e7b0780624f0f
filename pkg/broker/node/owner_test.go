package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// When the ClusterRole is deleted and made again, the garbage collector deletes the Node. One that is made again with
// the UID of the old ClusterRole would be deleted again and again.
func TestANodeThatIsMadeAgainHasTheOwnerThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		role := func(uid types.UID) *rbacv1.ClusterRole {
			return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "role", UID: uid}}
		}
		kube := fake.NewClientset(role("old"))
		n := newNode(t, kube)
		n.LeaseDuration, n.OwnerClusterRole = 40*time.Second, "role"
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- n.Run(ctx) }()
		time.Sleep(time.Minute)

		_, err := kube.RbacV1().ClusterRoles().Update(ctx, role("new"), metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, kube.CoreV1().Nodes().Delete(ctx, "broker", metav1.DeleteOptions{}))
		time.Sleep(10 * time.Minute)
		again, err := kube.CoreV1().Nodes().Get(ctx, "broker", metav1.GetOptions{})
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, err)
		require.Equal(t, types.UID("new"), again.OwnerReferences[0].UID)
	})
}
