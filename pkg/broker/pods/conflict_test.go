package pods

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
)

// older answers with a pod as it was.
type older struct {
	client.Client
	pod *corev1.Pod
}

func (o older) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if pod, ok := into.(*corev1.Pod); ok {
		o.pod.DeepCopyInto(pod)
		return nil
	}
	return o.Client.Get(ctx, key, into, options...)
}

// Liqo's ShadowPod controller writes each pod of a consumer right after it was bound
// (pkg/liqo-controller-manager/offloading/ shadowpod-controller): the broker, whose cache does not show that yet, reads
// the pod again, and does not wait.
func TestAPodThatHasChangedIsAssignedAtOnce(t *testing.T) {
	key := client.ObjectKey{Namespace: "ns", Name: "p"}
	bound := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"},
		Spec:       corev1.PodSpec{Containers: cpus("100m")},
	}
	written := func(c client.Client) *corev1.Pod {
		var pod corev1.Pod
		require.NoError(t, c.Get(t.Context(), key, &pod))
		return &pod
	}
	start := func(t *testing.T, patches *int) (c *Controller, cluster client.Client) {
		c = newController(t, true, interceptor.Funcs{
			Patch: func(
				ctx context.Context, to client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption,
			) error {
				*patches++
				return to.Patch(ctx, o, patch, options...)
			},
		}, nil, bound.DeepCopy())
		cluster = c.Client
		c.Client = older{cluster, written(cluster)}
		changed := written(cluster)
		changed.Annotations = map[string]string{"of": "Liqo"}
		require.NoError(t, cluster.Update(t.Context(), changed))
		return c, cluster
	}

	t.Run("assigned", func(t *testing.T) {
		var patches int
		c, cluster := start(t, &patches)
		result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		require.NoError(t, err)
		require.Zero(t, result)
		require.Equal(t, "q1", written(cluster).Labels[v1alpha1.VirtualNodeLabel])
		require.Equal(t, 2, patches)
	})
	t.Run("it goes on changing", func(t *testing.T) {
		var patches int
		c, cluster := start(t, &patches)
		c.Live = c.Client
		result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		require.NoError(t, err)
		require.Equal(t, requeue.FirstConflict, result.RequeueAfter)
		require.Empty(t, written(cluster).Labels)
		require.Equal(t, 2, patches)
	})
	t.Run("another one has its name", func(t *testing.T) {
		var patches int
		c, cluster := start(t, &patches)
		require.NoError(t, cluster.Delete(t.Context(), written(cluster)))
		next := bound.DeepCopy()
		next.UID = "2" // It is not bound, so it is not the broker's.
		require.NoError(t, cluster.Create(t.Context(), next))
		result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		require.NoError(t, err)
		require.Equal(t, requeue.FirstConflict, result.RequeueAfter)
		require.Empty(t, written(cluster).Labels)
		require.Equal(t, 1, patches)
	})
	t.Run("it has been assigned", func(t *testing.T) {
		var patches int
		c, cluster := start(t, &patches)
		assigned := written(cluster)
		assigned.Labels = map[string]string{v1alpha1.VirtualNodeLabel: "q2", v1alpha1.ProviderLabel: "q"}
		require.NoError(t, cluster.Update(t.Context(), assigned))
		result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		require.NoError(t, err)
		require.Zero(t, result, "it is reconciled when the cache shows it")
		require.Equal(t, "q2", written(cluster).Labels[v1alpha1.VirtualNodeLabel])
		require.Equal(t, 1, patches)
	})
	t.Run("it has been assigned by the first of two requests", func(t *testing.T) {
		var patches int
		c, cluster := start(t, &patches)
		assigned := written(cluster)
		assigned.Labels = map[string]string{v1alpha1.VirtualNodeLabel: "q1", v1alpha1.ProviderLabel: "q"}
		require.NoError(t, cluster.Update(t.Context(), assigned))
		_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		require.NoError(t, err)
		q, _ := c.State.Provider("q")
		require.Equal(t, 1, q.Assigned["q1"].Pods, "no other pod gets its room before the cache shows it")
	})
}

// The next step is with the cache's pod, which may be older than the one that the step was repeated with: in five of
// 10,000 histories the broker counted pods indefinitely that had left, or counted capacity twice.
func TestNoOtherStepIsRepeatedAtOnce(t *testing.T) {
	ended, patches := assignedPod(corev1.PodSucceeded, func(*corev1.Pod) {}), 0
	c := newController(t, false, interceptor.Funcs{
		Patch: func(ctx context.Context, to client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			patches++
			return to.Patch(ctx, o, patch, options...)
		},
	}, nil, ended)
	cluster, key := c.Client, client.ObjectKeyFromObject(ended)
	var pod corev1.Pod
	require.NoError(t, cluster.Get(t.Context(), key, &pod))
	c.Client = older{cluster, pod.DeepCopy()}
	pod.Annotations["of"] = "Liqo"
	require.NoError(t, cluster.Update(t.Context(), &pod))

	result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(t, err)
	require.Equal(t, requeue.FirstConflict, result.RequeueAfter)
	require.Equal(t, 1, patches)
	require.NoError(t, cluster.Get(t.Context(), key, &pod))
	require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel], "nothing was written")
}

// Between two failed writes the provider is asked, for example. Simulations showed 29 writes a second for as long as
// the cache lagged, and 20 while the API server refused connections.
func TestAPodWhoseWritesFailIsWrittenLessAndLessWhateverIsDoneBetween(t *testing.T) {
	refuses := false
	ended := assignedPod(corev1.PodSucceeded)
	c := newController(t, false, interceptor.Funcs{
		Patch: func(ctx context.Context, to client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if refuses {
				return errors.New("connection refused")
			}
			return to.Patch(ctx, o, patch, options...)
		},
	}, nil, ended)
	cluster, key := c.Client, client.ObjectKeyFromObject(ended)
	// changed has another client change the pod, which the cache does not show.
	changed := func(value string) {
		var pod corev1.Pod
		require.NoError(t, cluster.Get(t.Context(), key, &pod))
		c.Client = older{cluster, pod.DeepCopy()}
		pod.Annotations["of"] = value
		require.NoError(t, cluster.Update(t.Context(), &pod))
	}
	// reconciled acts as controller-runtime does, and returns after which time it reconciles the pod again.
	reconciled := func() time.Duration {
		request := ctrl.Request{NamespacedName: key}
		result, err := c.Reconcile(t.Context(), request)
		if err != nil {
			return c.failures.When(request)
		}
		c.failures.Forget(request)
		return result.RequeueAfter
	}
	// between is a reconciliation that writes nothing, since there is the VirtualNode.
	between := func() {
		spec := state.ProviderSpec{Enabled: true, VirtualNodes: map[string]bool{"q1": false}}
		c.State.SetProvider("q", spec, &v1alpha1.ProviderClusterStatus{})
		require.Zero(t, reconciled())
		c.State.RemoveProvider("q")
	}
	changed("Liqo")
	require.Equal(t, requeue.FirstConflict, reconciled())
	between()
	require.Equal(t, 2*requeue.FirstConflict, reconciled())
	changed("a consumer")
	require.Equal(t, requeue.FirstConflict, reconciled(), "the cache has shown another version")

	refuses = true
	first := reconciled()
	between()
	require.Equal(t, 2*first, reconciled())
	changed("a consumer again")
	require.Equal(t, first, reconciled())
}

// The answer to the write of an assignment was lost, and the cache does not show the assignment yet: its capacity stays
// reserved.
func TestTheRoomOfAnAssignmentWhoseAnswerWasLostIsKept(t *testing.T) {
	shown, written := assignedPod(corev1.PodPending), assignedPod(corev1.PodPending)
	shown.Labels, shown.Annotations = nil, nil
	c := newController(t, true, interceptor.Funcs{}, nil, written)
	require.NoError(t, c.resolveUncertain(t.Context(), shown))
	assumed, uncertain := c.State.Pod(shown.UID).Assumed, c.State.Pod(shown.UID).Uncertain
	require.True(t, assumed, "the cache does not show it yet, and would give the room away")
	require.False(t, uncertain)
}
