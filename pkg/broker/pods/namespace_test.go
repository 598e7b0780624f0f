package pods

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Pods and namespaces are read by two watches: the cache may show a pod first, and no event of the pod comes
// afterwards.
func TestAPodThatIsSeenBeforeItsNamespaceIsRetried(t *testing.T) {
	for name, pod := range map[string]*corev1.Pod{
		"an unassigned one": {
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"},
			Spec:       corev1.PodSpec{Containers: cpus("1")},
		},
		"an assigned one": assignedPod(corev1.PodRunning),
	} {
		t.Run(name, func(t *testing.T) {
			seen := false
			c := newController(t, true, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, isNamespace := o.(*corev1.Namespace); isNamespace && !seen {
						return kerrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
					}
					return c.Get(ctx, key, o, opts...)
				},
			}, nil, pod.DeepCopy())
			_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
			require.ErrorIs(t, err, errNamespaceUnknown, "it is retried with the back-off of the controller")

			seen = true
			now, _ := c.reconciled(t, "pod")
			require.Equal(t, "q1", now.Labels[v1alpha1.VirtualNodeLabel])
		})
	}
}

func TestAPodThatIsGoneIsNotRetried(t *testing.T) {
	c := newController(t, true, interceptor.Funcs{}, nil)
	result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "gone"}})
	require.NoError(t, err)
	require.Zero(t, result)
}
