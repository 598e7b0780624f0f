package broker

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func virtualNodeOf(provider, name string) *offloadingv1beta1.VirtualNode {
	return &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + provider, Name: name},
		Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: liqov1beta1.ClusterID(provider)},
	}
}

// brokerWith is a broker that just began to lead, in a cluster of these objects. It is told what the broker deletes.
func brokerWith(t *testing.T, deleted func(client.Object), objects ...client.Object) *Broker {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&corev1.Pod{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				deleted(o)
				return c.Delete(ctx, o, opts...)
			},
		}).Build()
	cfg := Config{MovesPerSecond: 1, MovesBurst: 1, ProviderSelector: labels.Everything()}
	return &Broker{
		client: c, live: c, core: newCore(&cfg), cfg: cfg, log: logr.Discard(), metrics: newMetrics(),
		events: record.NewFakeRecorder(10), wake: make(chan struct{}, 1), connections: newConnections(nil, nil, 0, ""),
		goneChecks: newGoneChecks(),
		policies: &placement.Policies{
			Client: c, Programs: criteria.NewCache(1), Defaults: placement.Rules{Failover: v1alpha1.FailoverMove},
		},
	}
}

// Nobody but the broker ends a pod whose VirtualNode, and with it the virtual kubelet, is gone.
func TestAPodThatIsDeletedEndsWithoutItsVirtualNode(t *testing.T) {
	finalizer := func(pod *corev1.Pod) { pod.Finalizers = []string{"test/keep"} }           // The fake client refuses what is deleted otherwise.
	onItsWay := assignedPod(corev1.PodPending, deleting, finalizer, func(pod *corev1.Pod) { // An earlier leader sent it.
		pod.Labels = nil
		pod.Annotations[v1alpha1.MovingFromAnnotation], pod.Annotations[v1alpha1.MovingFromProviderAnnotation] = "q1", "q"
	})
	for name, tc := range map[string]struct {
		pod *corev1.Pod
		// nodes are the VirtualNodes that there are.
		nodes []client.Object
		ends  bool
	}{
		"a running one":                          {assignedPod(corev1.PodRunning, deleting, finalizer), nil, true},
		"one that is done":                       {assignedPod(corev1.PodFailed, deleting, finalizer), nil, true},
		"one that is done, served":               {assignedPod(corev1.PodFailed, deleting, finalizer), []client.Object{virtualNodeOf("q", "q1")}, false},
		"a running one, served":                  {assignedPod(corev1.PodRunning, deleting, finalizer), []client.Object{virtualNodeOf("q", "q1")}, false},
		"a running one, with a sibling":          {assignedPod(corev1.PodRunning, deleting, finalizer), []client.Object{virtualNodeOf("q", "q2")}, false},
		"one that is done, with a sibling":       {assignedPod(corev1.PodFailed, deleting, finalizer), []client.Object{virtualNodeOf("q", "q2")}, false},
		"one that is on its way, with a sibling": {onItsWay, []client.Object{virtualNodeOf("q", "q2")}, false},
		"one that is on its way, without":        {onItsWay.DeepCopy(), nil, true},
		"one that nobody deletes":                {assignedPod(corev1.PodFailed, finalizer), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			ended := false
			b := brokerWith(t, func(o client.Object) {
				_, pod := o.(*corev1.Pod)
				ended = ended || pod
			}, append(tc.nodes, tc.pod)...)
			for range 5 { // Steps, of which each sees what the one before has written.
				_, err := b.step(t.Context(), nameOf(tc.pod))
				require.NoError(t, client.IgnoreNotFound(err))
			}
			require.Equal(t, tc.ends, ended)
		})
	}
}
