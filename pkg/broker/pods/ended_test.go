package pods

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// The pods of a Job are kept when they have ended, and their ShadowPods with them. The provider would reject the next
// pod, and the broker would withhold capacity that it knows to be used.
func TestKeptPodsOfAJobFillTheirSlice(t *testing.T) {
	kept := func(name string, phase corev1.PodPhase) *corev1.Pod {
		return assignedPod(phase, func(pod *corev1.Pod) {
			pod.Name, pod.UID, pod.Spec.Containers = name, types.UID(name), cpus("1")
		})
	}
	succeeded, failed := kept("succeeded", corev1.PodSucceeded), kept("failed", corev1.PodFailed)
	next := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "next", UID: "next"},
		Spec:       corev1.PodSpec{Containers: cpus("1")},
	}
	c := newController(t, true, interceptor.Funcs{}, nil, succeeded, failed, next)

	for range 2 { // Once by the Restorer, once by the observations since.
		pod, _ := c.reconciled(t, "next")
		require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel])
		why := c.reported(t, "next")
		require.Equal(t, "NoProviderFits", why.Reason)
		require.Contains(t, why.Message, "insufficient cpu")
		c.reconciled(t, "succeeded")
		c.reconciled(t, "failed")
	}
	require.Zero(t, c.State.Counts().Assigned, "they are no pods of the provider any more")

	require.NoError(t, c.Client.Delete(t.Context(), failed))
	_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(failed)})
	require.NoError(t, err)
	pod, _ := c.reconciled(t, "next")
	require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel], "its ShadowPod is gone")
}

// A pod that ends without the label has no virtual kubelet that keeps its ShadowPod.
func TestAPodThatEndsUnassignedHoldsNothing(t *testing.T) {
	moving := assignedPod(corev1.PodFailed, func(pod *corev1.Pod) {
		pod.Labels, pod.Spec.Containers = nil, cpus("2")
		pod.Annotations[v1alpha1.MovingFromAnnotation], pod.Annotations[v1alpha1.MovingFromProviderAnnotation] = "q1", "q"
	})
	next := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "next", UID: "next"},
		Spec:       corev1.PodSpec{Containers: cpus("2")},
	}
	c := newController(t, true, interceptor.Funcs{}, nil, moving, next)
	c.reconciled(t, "pod")
	pod, _ := c.reconciled(t, "next")
	require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
}

// The provider has removed it with the VirtualNode. Another VirtualNode of that name has all that it is granted.
func TestAPodThatHasEndedIsNotAssignedToAVirtualNodeThatIsGone(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes          []client.Object
		unguarded      bool
		keeps, retries bool
	}{
		"it is gone": {},
		"it exists":  {nodes: []client.Object{virtualNodeOf("q", "q1")}, keeps: true},
		"another one of the provider has not been asked yet": {
			nodes: []client.Object{virtualNodeOf("q", "q2")}, keeps: true, retries: true,
		},
		"the guard is not in force": {unguarded: true, keeps: true, retries: true},
	} {
		t.Run(name, func(t *testing.T) {
			ended := assignedPod(corev1.PodSucceeded, func(pod *corev1.Pod) { pod.Spec.Containers = cpus("1") })
			c := newController(t, false, interceptor.Funcs{}, nil, append(tc.nodes, ended)...)
			if tc.unguarded {
				c.Guard = unknownGuard(t)
			}
			pod, result := c.reconciled(t, "pod")
			require.Equal(t, tc.keeps, pod.Labels[v1alpha1.VirtualNodeLabel] == "q1")
			require.Equal(t, tc.keeps, pod.Labels[v1alpha1.ProviderLabel] == "q")
			require.Equal(t, tc.retries, result.RequeueAfter > 0)
			require.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
		})
	}
}
