package pods

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// unknownGuard is a guard of which nothing is known yet.
func unknownGuard(t *testing.T) *admission.Guard {
	t.Helper()
	unknown, err := admission.New(kubefake.NewClientset(), func(context.Context) {})
	require.NoError(t, err)
	return unknown
}

func (c *Controller) reconciled(t *testing.T, name string) (corev1.Pod, ctrl.Result) {
	t.Helper()
	key := types.NamespacedName{Namespace: "ns", Name: name}
	result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, c.Client.Get(t.Context(), key, &pod))
	return pod, result
}

// reported is why a pod waits, once that is written.
func (c *Controller) reported(t *testing.T, name string) *corev1.PodCondition {
	t.Helper()
	key := types.NamespacedName{Namespace: "ns", Name: name}
	_, err := c.reports.Write(t.Context(), key)
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, c.Client.Get(t.Context(), key, &pod))
	why := placement.Condition(&pod, v1alpha1.ConditionAssigned)
	require.NotNil(t, why)
	return why
}

func TestNoPodIsAssignedBeforeTheGuardIsKnown(t *testing.T) {
	waiting := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"},
		Spec:       corev1.PodSpec{Containers: cpus("1")},
	}
	c := newController(t, true, interceptor.Funcs{}, nil, waiting)
	c.Guard = unknownGuard(t)
	pod, result := c.reconciled(t, "pod")
	require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel])
	require.Positive(t, result.RequeueAfter)
	require.Equal(t, "Unguarded", c.reported(t, "pod").Reason)

	c.Guard = nil // Not required.
	pod, _ = c.reconciled(t, "pod")
	require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
}

func TestADrainedPodStaysWhileTheGuardIsMissing(t *testing.T) {
	c := newController(t, true, interceptor.Funcs{}, nil, assignedPod(corev1.PodRunning))
	c.State.SetProvider("q", state.ProviderSpec{
		Enabled: true, Draining: true, VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{},
	}, &v1alpha1.ProviderClusterStatus{})
	c.State.Schedule(scheduler.Provider{ID: "q", Enabled: true, Ready: true, Slices: []scheduler.Slice{{VirtualNode: "q1"}}})
	c.Guard = unknownGuard(t)
	pod, result := c.reconciled(t, "pod")
	require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
	require.Positive(t, result.RequeueAfter)

	c.Guard = nil
	pod, _ = c.reconciled(t, "pod")
	require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel], "it leaves")
}
