package alive

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// grace is the shortest grace period of a Node: the default of --node-monitor-grace-period before Kubernetes v1.32.
const grace = 40 * time.Second

// home is the broker's cluster, with a Node and its lease.
type home struct {
	*fake.Clientset
	t *testing.T
	// serves is the value of Serves for all virtual kubelets.
	serves atomic.Bool
}

func newHome(t *testing.T) *home {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "broker", UID: "node"}
	node := &corev1.Node{ObjectMeta: meta, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "BrokerLeads"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		{Type: v1alpha1.NodeUnguarded, Status: corev1.ConditionFalse},
	}}}
	h := &home{Clientset: fake.NewClientset(node, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "broker"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("broker"), LeaseDurationSeconds: ptr.To(int32(20)), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}), t: t}
	h.serves.Store(true)
	return h
}

// run runs many virtual kubelets while do runs.
func (h *home) run(many int, do func()) {
	h.t.Helper()
	ctx, stop := context.WithCancel(h.t.Context())
	ended := make(chan error, many)
	for i := range many {
		go func() {
			ended <- Run(ctx, Config{
				Log: logr.Discard(), Kube: h, Node: "broker", VirtualNode: fmt.Sprint("provider", i), Serves: h.serves.Load,
			})
		}()
	}
	do()
	stop()
	for range many {
		require.NoError(h.t, <-ended)
	}
}

func (h *home) lease() *coordinationv1.Lease {
	h.t.Helper()
	lease, err := h.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(h.t.Context(), "broker", metav1.GetOptions{})
	require.NoError(h.t, err)
	return lease
}

// renew renews the lease as the broker does.
func (h *home) renew() {
	h.t.Helper()
	lease := h.lease()
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	delete(lease.Annotations, v1alpha1.RenewedByAnnotation)
	_, err := h.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(h.t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(h.t, err)
}

// requireAlive checks each second whether the lease is younger than the grace period.
func (h *home) requireAlive(during time.Duration) {
	h.t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(time.Second) {
		require.Less(h.t, time.Since(h.lease().Spec.RenewTime.Time), grace)
	}
}

func (h *home) conditions() map[corev1.NodeConditionType]corev1.ConditionStatus {
	h.t.Helper()
	node, err := h.CoreV1().Nodes().Get(h.t.Context(), "broker", metav1.GetOptions{})
	require.NoError(h.t, err)
	out := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range node.Status.Conditions {
		out[c.Type] = c.Status
	}
	return out
}

func TestTheNodeStaysAliveWhileAVirtualKubeletServesItsPods(t *testing.T) {
	for _, many := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t)
			h.run(many, func() {
				h.requireAlive(30 * time.Minute)
				require.NotEmpty(t, h.lease().Annotations[v1alpha1.RenewedByAnnotation])
				h.serves.Store(false)
				time.Sleep(time.Minute)
				last := h.lease().Spec.RenewTime
				time.Sleep(5 * time.Minute)
				require.Equal(t, last, h.lease().Spec.RenewTime, "a Node whose pods are not served is lost")
			})
		})
	}
}

func TestTheLeaseIsTheBrokersWhileItRenewsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		h.run(3, func() {
			for range 100 {
				h.renew()
				time.Sleep(5 * time.Second)
				require.Empty(t, h.lease().Annotations)
			}
			h.ClearActions()
			h.requireAlive(2 * time.Minute) // The broker is not running.
			require.NotEmpty(t, h.lease().Annotations)
			for range 20 {
				h.renew()
				time.Sleep(5 * time.Second)
				require.Empty(t, h.lease().Annotations)
			}
		})
	})
}

// An outage of the API server stops all brokers and virtual kubelets. Kubernetes counts from the last renewal before
// it.
func TestALeaseOfLongAgoIsRenewedAsSoonAsAVirtualKubeletServes(t *testing.T) {
	for age, renewed := range map[time.Duration]bool{45 * time.Second: true, 25 * time.Second: true, 10 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t)
			time.Sleep(age)
			h.serves.Store(false)
			h.run(1, func() {
				time.Sleep(5 * time.Second)
				last := h.lease().Spec.RenewTime
				h.serves.Store(true)
				time.Sleep(2 * time.Second)
				require.Equal(t, renewed, !last.Equal(h.lease().Spec.RenewTime), age)
			})
		})
	}
}

// After an outage, the API server rejects requests for a moment.
func TestAFirstCheckThatFailsIsRepeatedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		time.Sleep(30 * time.Second)
		last := h.lease().Spec.RenewTime
		requests := 0
		h.PrependReactor("get", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
			requests++
			return requests == 1, nil, errors.New("too early")
		})
		h.run(1, func() {
			time.Sleep(4 * time.Second)
			require.False(t, last.Equal(h.lease().Spec.RenewTime))
		})
	})
}

// All were down, and Kubernetes assumes that the Node is lost. The broker writes the other conditions.
func TestALostNodeIsReadyAgainWhenItsPodsAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		node, err := h.CoreV1().Nodes().Get(t.Context(), "broker", metav1.GetOptions{})
		require.NoError(t, err)
		for i := range node.Status.Conditions {
			node.Status.Conditions[i].Status = corev1.ConditionUnknown
		}
		_, err = h.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		h.run(2, func() {
			time.Sleep(grace)
			require.Equal(t, map[corev1.NodeConditionType]corev1.ConditionStatus{
				corev1.NodeReady: corev1.ConditionTrue, corev1.NodeDiskPressure: corev1.ConditionFalse,
				v1alpha1.NodeUnguarded: corev1.ConditionUnknown,
			}, h.conditions())
		})
	})
}

func TestANodeThatIsNotReadyForAnotherReasonStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		node, err := h.CoreV1().Nodes().Get(t.Context(), "broker", metav1.GetOptions{})
		require.NoError(t, err)
		node.Status.Conditions[0].Status = corev1.ConditionFalse
		_, err = h.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		h.run(1, func() {
			time.Sleep(5 * time.Minute)
			require.Equal(t, corev1.ConditionFalse, h.conditions()[corev1.NodeReady])
		})
	})
}

func TestTheLeaseOfANodeThatHasNoneIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		leases := h.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		require.NoError(t, leases.Delete(t.Context(), "broker", metav1.DeleteOptions{}))
		h.run(1, func() {
			time.Sleep(grace)
			require.EqualValues(t, "node", h.lease().OwnerReferences[0].UID)
			h.requireAlive(5 * time.Minute)
		})
		require.NoError(t, leases.Delete(t.Context(), "broker", metav1.DeleteOptions{}))
		require.NoError(t, h.CoreV1().Nodes().Delete(t.Context(), "broker", metav1.DeleteOptions{}))
		h.run(1, func() {
			time.Sleep(5 * time.Minute)
			list, err := leases.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Empty(t, list.Items, "the broker was removed")
		})
	})
}
