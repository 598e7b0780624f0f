package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// newNode is the Node of a broker with one provider, of 8 CPUs, one of which a pod requests. The provider has not been
// probed.
func newNode(t *testing.T, kube kubernetes.Interface) *Node {
	t.Helper()
	known := state.New(state.Config{Clock: clock.RealClock{}, SuspicionWindow: time.Minute, ProbeInterval: time.Second})
	known.SetProvider("p", state.ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"p1": false}}, &v1alpha1.ProviderClusterStatus{})
	known.ObserveAssigned(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: resources.Amounts{corev1.ResourceCPU: 1000}.List(),
		}}}},
	}, scheduler.Place{Provider: "p", VirtualNode: "p1"})
	scheme, err := apischeme.New()
	require.NoError(t, err)
	objects := []client.Object{&v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "p"}}}
	n := New(Config{
		Changed: NewSignal(),
		Log:     testr.New(t), Client: ctrlfake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		Kube: kube, State: known, Restored: func() bool { return true }, Name: "broker", IP: "10.0.0.2", Version: "v1",
	})
	n.unsettled = 1
	return n
}

// schedule has the provider be usable, or not.
func (n *Node) schedule(usable bool) {
	n.State.Schedule(scheduler.Provider{ID: "p", Enabled: true, Cordoned: !usable, Ready: true, Slices: []scheduler.Slice{
		{VirtualNode: "p1", Granted: resources.Amounts{corev1.ResourceCPU: 8000, corev1.ResourcePods: 10}},
	}})
}

// Kubernetes evicts the pods of a Node that is not Ready, and Liqo marks them as not Ready.
func TestTheNodeIsReadyWhateverItsProvidersAre(t *testing.T) {
	n := newNode(t, nil)
	n.schedule(true)
	n.last = n.forge(nil)
	require.EqualValues(t, 8, n.last.Status.Allocatable.Cpu().Value())
	require.Nil(t, n.next(true), "nothing has changed")

	n.schedule(false)
	cordoned := n.next(true)
	require.NotNil(t, cordoned)
	ready := cordoned.Status.Conditions[0]
	require.Equal(t, corev1.NodeReady, ready.Type)
	require.Equal(t, corev1.ConditionTrue, ready.Status)
	require.Equal(t, "0 provider clusters accept new pods", ready.Message)
	require.EqualValues(t, 1, cordoned.Status.Allocatable.Cpu().Value(), "what its pods request")
	require.EqualValues(t, 1, cordoned.Status.Allocatable.Pods().Value())
}

func TestANewLeaderKeepsTheCapacityUntilItHasProbed(t *testing.T) {
	before := newNode(t, nil)
	before.schedule(true)
	there := before.forge(nil)
	delete(there.Labels, "type") // A version before did not have it.
	cluster := fake.NewClientset(there)
	n := newNode(t, cluster)
	first := n.forge(nil)
	require.NoError(t, n.claim(t.Context(), first))
	updated, err := cluster.CoreV1().Nodes().Get(t.Context(), there.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "virtual-kubelet", updated.Labels["type"])
	require.Equal(t, there.Status.Allocatable, first.Status.Allocatable)
	require.False(t, n.isSettled(t.Context()))

	n.State.ObserveProbe("p", state.Probe{Ended: time.Now(), Answered: true})
	require.True(t, n.isSettled(t.Context()))

	hanging := newNode(t, nil)
	hanging.unsettled = 0
	require.True(t, hanging.isSettled(t.Context()), "a provider that does not answer holds up nothing for long")

	delete(there.Labels, v1alpha1.BrokerNodeLabel)
	require.ErrorContains(t, newNode(t, fake.NewClientset(there)).claim(t.Context(), first), "choose another --broker-node")
}

// For a process that was suspended much time has passed, in which no provider was probed.
func TestTheCapacityIsKeptForSoManyTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fake.NewClientset())
		n.ProbeTimeout = 3 * time.Second
		stands := true
		n.Restored = func() bool {
			if stands {
				stands = false
				time.Sleep(time.Minute)
			}
			return true
		}
		ctx, stop := context.WithCancel(t.Context())
		var at []time.Duration
		began := time.Now()
		n.NotifyNodeStatus(ctx, func(*corev1.Node) { at = append(at, time.Since(began)) })
		n.Changed.Send()
		time.Sleep(2 * time.Minute)
		stop()
		synctest.Wait()
		require.Len(t, at, 1)
		require.InDelta(t, 70, at[0].Seconds(), 1, "ten seconds of work, whenever that is")
	})
}

// Changes that do not depend on providers are shown at once.
func TestConditionsAreShownBeforeTheCapacityIsKnown(t *testing.T) {
	n := newNode(t, nil)
	n.schedule(true)
	n.last = n.forge(nil)
	n.schedule(false)
	now := n.next(false)
	require.NotNil(t, now)
	require.Equal(t, "0 provider clusters accept new pods", now.Status.Conditions[0].Message)
	require.EqualValues(t, 8, now.Status.Allocatable.Cpu().Value())
	require.EqualValues(t, 1, n.next(true).Status.Allocatable.Cpu().Value())
}

// Without the assigned pods, the Node would show no capacity for them.
func TestTheCapacityIsKeptUntilAllPodsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, fake.NewClientset())
		began := time.Now()
		n.Restored = func() bool { return time.Since(began) >= 15*time.Second }
		ctx, stop := context.WithCancel(t.Context())
		var at []time.Duration
		n.NotifyNodeStatus(ctx, func(*corev1.Node) { at = append(at, time.Since(began)) })
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		require.Equal(t, []time.Duration{15 * time.Second}, at)
	})
}

func TestTheBrokerUncordonsItsNodeOnlyIfItCordonedIt(t *testing.T) {
	kube := fake.NewClientset()
	n := newNode(t, kube)
	require.NoError(t, n.claim(t.Context(), n.forge(nil)))
	get := func() *corev1.Node {
		t.Helper()
		node, err := kube.CoreV1().Nodes().Get(t.Context(), "broker", metav1.GetOptions{})
		require.NoError(t, err)
		return node
	}
	cordon := func(usable bool) *corev1.Node {
		t.Helper()
		n.schedule(usable)
		require.NoError(t, n.cordon(t.Context()))
		return get()
	}
	require.False(t, cordon(true).Spec.Unschedulable)
	cordoned := cordon(false)
	require.True(t, cordoned.Spec.Unschedulable)
	require.Contains(t, cordoned.Annotations, v1alpha1.NoProviderAnnotation)
	freed := cordon(true)
	require.False(t, freed.Spec.Unschedulable)
	require.NotContains(t, freed.Annotations, v1alpha1.NoProviderAnnotation)

	freed.Spec.Unschedulable = true
	_, err := kube.CoreV1().Nodes().Update(t.Context(), freed, metav1.UpdateOptions{})
	require.NoError(t, err)
	for _, usable := range []bool{false, true} {
		require.True(t, cordon(usable).Spec.Unschedulable, "an administrator has cordoned it")
	}
}

// client-go's retry takes the error of a context for none: the Node would stay as it is, and not be cordoned later
// either.
func TestACordonWithoutAnAnswerIsNotDone(t *testing.T) {
	kube := fake.NewClientset()
	n := newNode(t, kube)
	require.NoError(t, n.claim(t.Context(), n.forge(nil)))
	unanswered := true
	kube.PrependReactor("update", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return unanswered, nil, context.DeadlineExceeded
	})
	n.schedule(false)
	require.ErrorIs(t, n.cordon(t.Context()), context.DeadlineExceeded)
	unanswered = false
	require.NoError(t, n.cordon(t.Context()))
	node, err := kube.CoreV1().Nodes().Get(t.Context(), "broker", metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, node.Spec.Unschedulable)
}

// virtual-kubelet's node controller would use the Node that it did not get.
func TestAStatusWithoutAnAnswerIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		n := newNode(t, kube)
		n.LeaseDuration = 40 * time.Second
		var gets atomic.Int32
		kube.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			n := gets.Add(1)
			return n == 5 || n == 6, nil, fmt.Errorf("no answer: %w", context.DeadlineExceeded)
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- n.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		require.Greater(t, gets.Load(), int32(6))
		stop()
		require.NoError(t, <-ended)
	})
}
