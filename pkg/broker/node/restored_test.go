package node

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

var maintenance = corev1.Taint{Key: "example.com/maintenance", Effect: corev1.TaintEffectNoSchedule}

// cluster has an API server that numbers its Nodes, as their UIDs.
type cluster struct {
	*fake.Clientset
	t *testing.T
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	kube, made := fake.NewClientset(), 0
	kube.PrependReactor("create", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made++
		action.(clienttesting.CreateAction).GetObject().(*corev1.Node).UID = types.UID(fmt.Sprint(made))
		return false, nil, nil
	})
	return cluster{kube, t}
}

// led runs a leader of the broker while do runs.
func (c cluster) led(usable bool, do func()) {
	c.t.Helper()
	n := newNode(c.t, c)
	n.LeaseDuration, n.Namespace = 20*time.Second, "liqo-broker"
	n.schedule(usable)
	ctx, stop := context.WithCancel(c.t.Context())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	time.Sleep(10 * time.Second)
	do()
	stop()
	require.NoError(c.t, <-ended)
}

func (c cluster) node() *corev1.Node {
	c.t.Helper()
	node, err := c.CoreV1().Nodes().Get(c.t.Context(), "broker", metav1.GetOptions{})
	require.NoError(c.t, err)
	return node
}

func (c cluster) delete() {
	c.t.Helper()
	require.NoError(c.t, c.CoreV1().Nodes().Delete(c.t.Context(), "broker", metav1.DeleteOptions{}))
}

// change has an administrator change the Node, and the broker see it.
func (c cluster) change(change func(*corev1.Node)) {
	c.t.Helper()
	node := c.node()
	change(node)
	_, err := c.CoreV1().Nodes().Update(c.t.Context(), node, metav1.UpdateOptions{})
	require.NoError(c.t, err)
	time.Sleep(2 * time.Second)
}

func administer(node *corev1.Node) {
	node.Spec.Unschedulable = true
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
	node.Spec.Taints = append(node.Spec.Taints, maintenance, unreachable)
	node.Labels["example.com/zone"], node.Labels["example.com/rack"] = "a", "1"
}

func TestADeletedNodeIsRestoredAtOnceAsAdministratorsHadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.led(true, func() {
			c.change(administer)
			c.change(func(node *corev1.Node) { delete(node.Labels, "example.com/rack") })
			c.delete()
			time.Sleep(2 * time.Second)
			restored := c.node()
			require.EqualValues(t, "2", restored.UID)
			require.True(t, restored.Spec.Unschedulable)
			require.Contains(t, restored.Spec.Taints, maintenance)
			require.Len(t, restored.Spec.Taints, 2, "Kubernetes sets those of the Node's state")
			require.True(t, hasTaint(restored.Spec.Taints))
			require.Equal(t, "a", restored.Labels["example.com/zone"])
			require.NotContains(t, restored.Labels, "example.com/rack", "an administrator removed it")
			require.NotContains(t, restored.Annotations, v1alpha1.NoProviderAnnotation)
			require.NotEmpty(t, restored.Status.Allocatable)

			time.Sleep(6 * time.Second)
			lease, err := c.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "broker", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, restored.UID, lease.OwnerReferences[0].UID)

			c.change(func(node *corev1.Node) { node.Spec.Unschedulable = false })
			c.delete()
			time.Sleep(2 * time.Second)
			require.False(t, c.node().Spec.Unschedulable)
		})
	})
}

func TestANodeThatWasDeletedWithoutALeaderIsRestoredAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.led(true, func() { c.change(administer) })
		c.delete()
		c.led(true, func() {
			restored := c.node()
			require.True(t, restored.Spec.Unschedulable)
			require.Contains(t, restored.Spec.Taints, maintenance)
			require.Equal(t, "a", restored.Labels["example.com/zone"])
		})
	})
}

// While no provider takes pods the cordon is the broker's, also of the next Node.
func TestTheCordonOfTheBrokerIsRestoredAsTheBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.led(false, func() {
			c.delete()
			time.Sleep(2 * time.Second)
			require.True(t, c.node().Spec.Unschedulable)
			require.Contains(t, c.node().Annotations, v1alpha1.NoProviderAnnotation)
		})
		c.led(true, func() { require.False(t, c.node().Spec.Unschedulable) })
	})
}

func TestWhatTheBrokerNeedsOfItsNodeIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.led(true, func() {
			c.change(func(node *corev1.Node) { node.Spec.Taints, node.Labels = nil, nil })
			require.True(t, hasTaint(c.node().Spec.Taints))
			require.Equal(t, consts.TypeNode, c.node().Labels[consts.TypeLabel])
			require.Contains(t, c.node().Labels, v1alpha1.BrokerNodeLabel)

			c.change(func(node *corev1.Node) { node.Spec.Taints[0].Effect = corev1.TaintEffectNoSchedule })
			require.Equal(t, corev1.TaintEffectNoSchedule, c.node().Spec.Taints[0].Effect, "an administrator chose it")
			c.delete()
			time.Sleep(2 * time.Second)
			require.Len(t, c.node().Spec.Taints, 1)
			require.Equal(t, corev1.TaintEffectNoSchedule, c.node().Spec.Taints[0].Effect)
		})
	})
}

// Kubernetes' controller of Nodes sets Ready to Unknown while no process renews the lease, and nothing else sets it
// back.
func TestANodeThatWasTakenForLostIsReadyAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.led(true, func() {
			lost := c.node()
			for i := range lost.Status.Conditions {
				lost.Status.Conditions[i].Status = corev1.ConditionUnknown
			}
			_, err := c.CoreV1().Nodes().UpdateStatus(t.Context(), lost, metav1.UpdateOptions{})
			require.NoError(t, err)
			time.Sleep(3 * time.Second)
			require.True(t, isReady(c.node()))
		})
	})
}
