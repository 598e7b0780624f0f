package providers

import (
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote/remotetest"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// A provider was unreachable, and its pods were moved away. Before it answered again, one of its two VirtualNodes was deleted: no
// virtual kubelet deletes what that one has left, and Liqo keeps the namespace for the other one.
func TestWhatAVirtualNodeThatIsGoneHasLeftIsNotClean(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	stays := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "v2"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1"},
	}
	liqo := liqofake.NewSimpleClientset(&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a-p1", Name: "pod", UID: "shadow", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "v1"},
	}})
	known := belief.New(belief.Config{Clock: clock.RealClock{}})
	known.SetProvider("p1", belief.ProviderSpec{
		Enabled: true, VirtualNodes: map[string]bool{"v2": false}, RemoteNamespaces: map[string]string{"a": "a-p1"},
	}, &v1alpha1.ProviderClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse}}})
	known.ObserveProbe("p1", belief.Probe{Ended: time.Now(), Answered: true})
	connections := remote.NewConnections(nil, nil, "")
	connections.Set(&remote.Connection{Provider: "p1", VirtualNode: "v2", Liqo: remotetest.Liqo(liqo)})
	controller := New(Config{
		Log: testr.New(t), Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(stays, tenantOf("p1")).Build(), Belief: known,
		Connections: connections, Selector: labels.Everything(), ProbeInterval: 5 * time.Second, RequestTimeout: time.Second,
	})
	controller.checkClean(t.Context(), "p1")
	left, err := liqo.OffloadingV1beta1().ShadowPods("a-p1").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	_, _, uncleaned := known.Uncleaned("p1")
	require.True(t, uncleaned || len(left.Items) == 0, "it counts as clean, and the pod that was moved away still runs there")
}
