package pods

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote/remotetest"
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
	// The fake client rejects a deleting object without finalizers.
	finalizer := func(pod *corev1.Pod) { pod.Finalizers = []string{"test/keep"} }
	moving := assignedPod(corev1.PodPending, deleting, finalizer, func(pod *corev1.Pod) { // An earlier leader sent it.
		leaves("q1")(pod)
	})
	for name, tc := range map[string]struct {
		pod *corev1.Pod
		// nodes are the VirtualNodes that there are.
		nodes []client.Object
		ends  bool
	}{
		"a running one":  {assignedPod(corev1.PodRunning, deleting, finalizer), nil, true},
		"a terminal one": {assignedPod(corev1.PodFailed, deleting, finalizer), nil, true},
		"a terminal one, served": {
			assignedPod(corev1.PodFailed, deleting, finalizer), []client.Object{virtualNodeOf("q", "q1")}, false,
		},
		"a running one, served": {
			assignedPod(corev1.PodRunning, deleting, finalizer), []client.Object{virtualNodeOf("q", "q1")}, false,
		},
		"a running one, with a sibling": {
			assignedPod(corev1.PodRunning, deleting, finalizer), []client.Object{virtualNodeOf("q", "q2")}, false,
		},
		"a terminal one, with a sibling": {
			assignedPod(corev1.PodFailed, deleting, finalizer), []client.Object{virtualNodeOf("q", "q2")}, false,
		},
		"a moving one, with a sibling":  {moving, []client.Object{virtualNodeOf("q", "q2")}, false},
		"a moving one, without":         {moving.DeepCopy(), nil, true},
		"one that is not being deleted": {assignedPod(corev1.PodFailed, finalizer), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := false
				c := newController(t, false, interceptor.Funcs{
					Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
						_, pod := o.(*corev1.Pod)
						ended = ended || pod
						return c.Delete(ctx, o, opts...)
					},
				}, nil, append(tc.nodes, tc.pod)...)
				for range 5 { // Steps, each of which sees the writes of the previous one.
					_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tc.pod)})
					require.NoError(t, client.IgnoreNotFound(err))
					time.Sleep(v1alpha1.CreationDeadline)
				}
				require.Equal(t, tc.ends, ended)
			})
		})
	}
}

// It completed while it was leaving: the ShadowPod stays until its end is written, and goes then.
func TestAnEndedPodThatWasLeavingHoldsNothingAtAVirtualNodeThatIsGone(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"it is kept":    func(*corev1.Pod) {},
		"it is deleted": func(pod *corev1.Pod) { deleting(pod); pod.Finalizers = []string{"test/keep"} },
	} {
		t.Run(name, func(t *testing.T) {
			pod := assignedPod(corev1.PodSucceeded, change, leaves("q0"))
			finalized := 0
			c := newController(t, true, interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					finalized++
					return c.Delete(ctx, o, opts...)
				},
			}, nil, pod, virtualNodeOf("q", "q1"))
			c.drains()
			meta := metav1.ObjectMeta{
				Namespace: "ns-r", Name: "pod", UID: "shadow", Labels: map[string]string{forge.LiqoOriginClusterNodeName: "q0"},
				Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "uid"},
			}
			liqo := liqofake.NewSimpleClientset(&offloadingv1beta1.ShadowPod{ObjectMeta: meta})
			c.Checker.Connections.Set(&remote.Connection{
				Provider: "q", VirtualNode: "q1", Kube: remotetest.Kube(kubefake.NewClientset()), Liqo: remotetest.Liqo(liqo),
			})
			for range 4 {
				c.reconciled(t, "pod")
				c.Checker.Check(t.Context(), placed("q1"))
			}
			shadows, err := liqo.OffloadingV1beta1().ShadowPods("ns-r").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Empty(t, shadows.Items)
			after, _ := c.reconciled(t, "pod")
			if after.DeletionTimestamp != nil {
				require.Positive(t, finalized)
				return
			}
			require.NotContains(t, after.Annotations, v1alpha1.MovingFromAnnotation)
			require.Zero(t, c.Checker.Check(t.Context(), placed("q1")), "its provider is asked no more")
		})
	}
}

// Liqo may create the namespace again while a webhook there still delays a creation.
func TestACreationOnItsWayIsWaitedForWhenTheNamespaceIsGone(t *testing.T) {
	for name, released := range map[string]bool{"it may be": false, "its virtual kubelet released the pod": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				moving := assignedPod(corev1.PodPending, func(pod *corev1.Pod) {
					leaves("q1")(pod)
					if released {
						pod.Annotations[v1alpha1.ReleasedAnnotation] = v1alpha1.Assignment("q1", pod)
					}
				})
				c := newController(t, false, interceptor.Funcs{}, nil, moving)
				from := scheduler.Place{Provider: "q", VirtualNode: "q1"}
				_, result := c.reconciled(t, "pod")
				require.Equal(t, released, c.State.Pod(moving.UID).Left == from)
				if released {
					return
				}
				require.Equal(t, v1alpha1.CreationDeadline, result.RequeueAfter)
				time.Sleep(v1alpha1.CreationDeadline - time.Second)
				_, result = c.reconciled(t, "pod")
				require.Equal(t, time.Second, result.RequeueAfter)
				time.Sleep(time.Second)
				c.reconciled(t, "pod")
				require.True(t, c.State.Pod(moving.UID).Left == from)
			})
		})
	}
}
