package providers

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote/remotetest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// Four workers reconcile all providers. One that comes back after an outage, and takes a second for a list, holds one of them as long
// as it has namespaces, which consumers choose.
func TestAProviderThatListsSlowlyDoesNotHoldAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme, err := apischeme.New()
		require.NoError(t, err)
		const namespaces = 400
		m := &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "p1", Labels: map[string]string{"liqo.io/remote-cluster-id": "p1"}},
			Status:     offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{}},
		}
		for i := range namespaces {
			m.Status.CurrentMapping[fmt.Sprint("a", i)] = offloadingv1beta1.RemoteNamespaceStatus{
				RemoteNamespace: fmt.Sprint("a", i, "-p1"), Phase: offloadingv1beta1.MappingAccepted,
			}
		}
		virtualNode := &offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "v1"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1"},
		}
		pc := &v1alpha1.ProviderCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "p1"},
			Status: v1alpha1.ProviderClusterStatus{Conditions: []metav1.Condition{{
				Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMovedPodsLeft,
			}}},
		}
		liqo := liqofake.NewSimpleClientset()
		liqo.PrependReactor("list", "shadowpods", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Second)
			return false, nil, nil
		})
		known := belief.New(belief.Config{Clock: clock.RealClock{}})
		connections := remote.NewConnections(nil, nil, "")
		connections.Set(&remote.Connection{Provider: "p1", VirtualNode: "v1", Liqo: remotetest.Liqo(liqo)})
		controller := New(Config{
			Log: testr.New(t), Clock: clock.RealClock{}, Belief: known, Connections: connections, Selector: labels.Everything(),
			Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(virtualNode, m, pc, tenantOf("p1")).
				WithStatusSubresource(&v1alpha1.ProviderCluster{}).Build(),
			Restore: func(context.Context) error { return nil }, Changed: func(context.Context, string) {}, Queue: &requeue.Queue{},
			ProbeInterval: 5 * time.Second, RequestTimeout: 10 * time.Second, StatusInterval: 5 * time.Second,
		})
		_, err = controller.reconcile(t.Context(), "p1")
		require.NoError(t, err)
		known.ObserveProbe("p1", belief.Probe{Ended: time.Now(), Answered: true})
		began := time.Now()
		_, err = controller.reconcile(t.Context(), "p1")
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), controller.RequestTimeout)
	})
}
