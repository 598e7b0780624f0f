package pods

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

func virtualNodeOf(provider, name string) *offloadingv1beta1.VirtualNode {
	return &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + provider, Name: name},
		Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: liqov1beta1.ClusterID(provider)},
	}
}

// Only the broker ends a pod whose VirtualNode, and with it the virtual kubelet, is gone.
func TestAPodThatIsDeletedEndsWithoutItsVirtualNode(t *testing.T) {
	finalizer := func(pod *corev1.Pod) { pod.Finalizers = []string{"test/keep"} }         // The fake client refuses what is deleted otherwise.
	moving := assignedPod(corev1.PodPending, deleting, finalizer, func(pod *corev1.Pod) { // An earlier leader sent it.
		pod.Labels = nil
		pod.Annotations[v1alpha1.MovingFromAnnotation], pod.Annotations[v1alpha1.MovingFromProviderAnnotation] = "q1", "q"
	})
	for name, tc := range map[string]struct {
		pod *corev1.Pod
		// nodes are the VirtualNodes that there are.
		nodes []client.Object
		ends  bool
	}{
		"a running one":                  {assignedPod(corev1.PodRunning, deleting, finalizer), nil, true},
		"a terminal one":                 {assignedPod(corev1.PodFailed, deleting, finalizer), nil, true},
		"a terminal one, served":         {assignedPod(corev1.PodFailed, deleting, finalizer), []client.Object{virtualNodeOf("q", "q1")}, false},
		"a running one, served":          {assignedPod(corev1.PodRunning, deleting, finalizer), []client.Object{virtualNodeOf("q", "q1")}, false},
		"a running one, with a sibling":  {assignedPod(corev1.PodRunning, deleting, finalizer), []client.Object{virtualNodeOf("q", "q2")}, false},
		"a terminal one, with a sibling": {assignedPod(corev1.PodFailed, deleting, finalizer), []client.Object{virtualNodeOf("q", "q2")}, false},
		"a moving one, with a sibling":   {moving, []client.Object{virtualNodeOf("q", "q2")}, false},
		"a moving one, without":          {moving.DeepCopy(), nil, true},
		"one that is not being deleted":  {assignedPod(corev1.PodFailed, finalizer), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			ended := false
			c := newController(t, false, interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					_, pod := o.(*corev1.Pod)
					ended = ended || pod
					return c.Delete(ctx, o, opts...)
				},
			}, nil, append(tc.nodes, tc.pod)...)
			for range 5 { // Steps, of which each sees what the one before has written.
				_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tc.pod)})
				require.NoError(t, client.IgnoreNotFound(err))
			}
			require.Equal(t, tc.ends, ended)
		})
	}
}

// Liqo may make the namespace anew while a webhook there still holds a creation.
func TestACreationOnItsWayIsWaitedForWhenTheNamespaceIsGone(t *testing.T) {
	from := scheduler.Place{Provider: "q", VirtualNode: "q1"}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		leads  time.Duration // For so long, and it knows of no eviction.
		left   bool
	}{
		"it may be":                    {func(*corev1.Pod) {}, 0, false},
		"it cannot be any more":        {func(*corev1.Pod) {}, v1alpha1.CreationDeadline, true},
		"its virtual kubelet released": {func(pod *corev1.Pod) { pod.Annotations[v1alpha1.ReleasedAnnotation] = v1alpha1.Assignment("q1", pod) }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			moving := assignedPod(corev1.PodPending, func(pod *corev1.Pod) {
				pod.Labels = nil
				pod.Annotations[v1alpha1.MovingFromAnnotation], pod.Annotations[v1alpha1.MovingFromProviderAnnotation] = "q1", "q"
			}, tc.change)
			c := newController(t, false, interceptor.Funcs{}, nil, moving)
			c.leadsSince(t, time.Now().Add(-tc.leads))
			_, result := c.reconciled(t, "pod")
			require.Equal(t, tc.left, c.Belief.HasLeft(moving.UID, from))
			if !tc.left {
				require.Greater(t, result.RequeueAfter, v1alpha1.CreationDeadline/2)
				require.LessOrEqual(t, result.RequeueAfter, v1alpha1.CreationDeadline)
			}
		})
	}
}
