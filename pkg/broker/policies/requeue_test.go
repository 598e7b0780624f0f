package policies

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// A consumer that changes its selection again and again does not have the pods of others reconciled.
func TestAChangedPolicyRequeuesThePodsThatItMayApplyTo(t *testing.T) {
	namespace := func(name, consumer string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"liqo.io/remote-cluster-id": consumer},
			Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/" + consumer},
		}}
	}
	pod := func(namespace, name, policy string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}}}
		if policy != "" {
			p.Annotations = map[string]string{v1alpha1.PolicyAnnotation: policy}
		}
		return p
	}
	of := func(name string, spec v1alpha1.PlacementPolicySpec) *v1alpha1.PlacementPolicy {
		return &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}, Spec: spec}
	}
	selection := v1alpha1.PlacementPolicySpec{Consumers: []string{"c1"}, Selection: &v1alpha1.Selection{}}
	web := v1alpha1.PlacementPolicySpec{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
	scheme, err := apischeme.New()
	require.NoError(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.PlacementPolicy{}).WithObjects(
		namespace("shop-1", "c1"), namespace("shop-2", "c2"), of("selection-c1", selection), of("web", web), of("other", web),
		pod("shop-1", "web", ""), pod("shop-1", "named", "web"), pod("shop-2", "web", ""), pod("shop-2", "db", ""),
		pod("shop-2", "named", "other"), pod("unknown", "early", ""),
	).Build()
	queue := &requeue.Queue{}
	work := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer work.ShutDown()
	require.NoError(t, queue.Source().Start(t.Context(), work))
	controller := New(c, &placement.Policies{Client: c, Programs: cel.NewCache(1 << 20)},
		requeue.NewPods(queue, c, nil, logr.Discard()), clock.RealClock{}, NewMetrics(nil))
	requeued := func(name string) (names []string) {
		t.Helper()
		_, err := controller.reconcile(t.Context(), name)
		require.NoError(t, err)
		for queue.Len() > 0 {
			request, _ := work.Get()
			names = append(names, request.String())
			work.Done(request)
		}
		slices.Sort(names)
		return names
	}
	change := func(name string, change func(*v1alpha1.PlacementPolicySpec)) {
		var policy v1alpha1.PlacementPolicy
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: name}, &policy))
		change(&policy.Spec)
		policy.Generation++
		require.NoError(t, c.Update(t.Context(), &policy))
	}

	require.Len(t, requeued("web"), 6, "which pods it applied to before this leader is not known")
	require.Empty(t, requeued("web"), "nothing has changed")
	requeued("selection-c1")
	change("selection-c1", func(s *v1alpha1.PlacementPolicySpec) { s.Selection.Providers = []string{"p1"} })
	require.Equal(t, []string{"shop-1/named", "shop-1/web", "unknown/early"}, requeued("selection-c1"))
	change("web", func(s *v1alpha1.PlacementPolicySpec) { s.PodSelector.MatchLabels["app"] = "db" })
	require.Equal(t, []string{"shop-1/named", "shop-1/web", "shop-2/db", "shop-2/web", "unknown/early"}, requeued("web"), "before and now")
	require.NoError(t, c.Delete(t.Context(), of("web", web)))
	require.Equal(t, []string{"shop-1/named", "shop-2/db", "unknown/early"}, requeued("web"))
	require.Len(t, requeued("web"), 6, "it is not known any more")
}
