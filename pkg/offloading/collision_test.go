package offloading

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// mapOf is a NamespaceMap as Liqo replicates it from a consumer.
func mapOf(consumer string, mapping map[string]string) *offloadingv1beta1.NamespaceMap {
	return &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: consumer, Namespace: "liqo-tenant-" + consumer,
			Labels: map[string]string{"liqo.io/originID": consumer, "liqo.io/replicated": "true"},
		},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: mapping},
	}
}

// The name shop-us-eu belongs to shop-us of eu, which was first, and also to shop of us-eu.
func TestACollisionOfNamesIsReported(t *testing.T) {
	taken := arrived(func(ns *corev1.Namespace) {
		ns.Name, ns.Labels["liqo.io/remote-cluster-id"] = "shop-us-eu", "eu"
		ns.Annotations["liqo.io/managed-by-namespace-map"] = "liqo-tenant-eu/eu"
	})
	first, second := mapOf("eu", map[string]string{"shop-us": "shop-us-eu"}), mapOf("us-eu", map[string]string{"shop": "shop-us-eu"})
	r := newReconciler(t, "", taken, first, second)
	events := r.events.(*record.FakeRecorder).Events
	reconcileTaken := func() *corev1.NamespaceCondition {
		t.Helper()
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: taken.Name}})
		require.NoError(t, err)
		require.NoError(t, r.client.Get(t.Context(), client.ObjectKeyFromObject(taken), taken))
		for i := range taken.Status.Conditions {
			if taken.Status.Conditions[i].Type == v1alpha1.ConditionNameCollision {
				return &taken.Status.Conditions[i]
			}
		}
		return nil
	}

	condition := reconcileTaken()
	require.NotNil(t, condition)
	require.Equal(t, corev1.ConditionTrue, condition.Status)
	require.Equal(t, "1 other consumer namespace(s) map to this name and cannot be created here: "+
		"namespace shop of consumer us-eu", condition.Message)
	require.Equal(t, "Warning NamespaceTaken Liqo cannot create namespace shop-us-eu for namespace shop of consumer us-eu: "+
		"it already exists and belongs to consumer eu", <-events)
	require.Contains(t, <-events, "Reoffloading", "the namespace is offloaded as any other")

	reconcileTaken()
	require.Empty(t, events, "it is reported once")

	require.NoError(t, r.client.Delete(t.Context(), second))
	require.Equal(t, corev1.ConditionFalse, reconcileTaken().Status)
	require.Empty(t, events)
}

func TestClaims(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		namespace *corev1.Namespace
		maps      []offloadingv1beta1.NamespaceMap
		want      int
	}{
		"its own consumer's is none": {
			namespace: arrived(), maps: []offloadingv1beta1.NamespaceMap{*mapOf("c1", map[string]string{"shop": "shop-c1"})},
		},
		"another consumer's is one": {
			namespace: arrived(), maps: []offloadingv1beta1.NamespaceMap{*mapOf("x-c1", map[string]string{"shop": "shop-c1"})}, want: 1,
		},
		"one on a namespace that is nobody's is one": {
			namespace: arrived(func(ns *corev1.Namespace) { ns.Annotations = nil }),
			maps:      []offloadingv1beta1.NamespaceMap{*mapOf("c1", map[string]string{"shop": "shop-c1"})}, want: 1,
		},
		"other names are none": {
			namespace: arrived(), maps: []offloadingv1beta1.NamespaceMap{*mapOf("c2", map[string]string{"shop": "shop-c2"})},
		},
		"a map that goes has none": {namespace: arrived(), maps: []offloadingv1beta1.NamespaceMap{func() offloadingv1beta1.NamespaceMap {
			m := mapOf("c2", map[string]string{"shop": "shop-c1"})
			m.DeletionTimestamp = &now
			return *m
		}()}},
		"a map to a provider has none": {
			namespace: arrived(), maps: []offloadingv1beta1.NamespaceMap{func() offloadingv1beta1.NamespaceMap {
				m := mapOf("p1", map[string]string{"shop": "shop-c1"})
				m.Labels = map[string]string{"liqo.io/remoteID": "p1", "liqo.io/replication": "true"}
				return *m
			}()},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Len(t, claimsOn(tc.namespace, tc.maps), tc.want) })
	}
}

// One more namespace of a consumer requeues only that namespace, regardless of the consumer's other namespaces.
func TestAChangedMapConcernsWhatChanged(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	names := func() []string {
		var all []string
		for queue.Len() > 0 {
			request, _ := queue.Get()
			queue.Done(request)
			all = append(all, request.Name)
		}
		return all
	}
	before := mapOf("c1", map[string]string{"a": "a-c1", "b": "b-c1"})
	after := mapOf("c1", map[string]string{"a": "a-c1", "c": "c-c1"})
	claimed().Create(t.Context(), event.CreateEvent{Object: before}, queue)
	require.ElementsMatch(t, []string{"a-c1", "b-c1"}, names())
	claimed().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
	require.ElementsMatch(t, []string{"b-c1", "c-c1"}, names())
	claimed().Delete(t.Context(), event.DeleteEvent{Object: after}, queue)
	require.ElementsMatch(t, []string{"a-c1", "c-c1"}, names())
}

// The name of a namespace in a consumer's NamespaceMap is any text of any length, and there may be thousands.
func TestClaimsOfAHostileConsumerAreBounded(t *testing.T) {
	taken := arrived(func(ns *corev1.Namespace) { ns.Name = "taken" })
	mapping := map[string]string{}
	for i := range 2000 {
		mapping[fmt.Sprintf("\u202e%04d\n%s", i, strings.Repeat("x", 1000))] = taken.Name
	}
	r := newReconciler(t, "", taken, mapOf("evil", mapping))
	recorder := record.NewFakeRecorder(100)
	r.events = recorder
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: taken.Name}})
	require.NoError(t, err)
	require.NoError(t, r.client.Get(t.Context(), client.ObjectKeyFromObject(taken), taken))
	message := taken.Status.Conditions[len(taken.Status.Conditions)-1].Message
	require.Contains(t, message, "2000 other consumer namespace(s) map to this name")
	require.Less(t, len(message), 1024)
	require.NotContains(t, message, "\n")
	require.NotContains(t, message, "\u202e")
	require.LessOrEqual(t, len(recorder.Events), maxClaims+1)

	system := arrived(func(ns *corev1.Namespace) { ns.Name = "kube-system"; delete(ns.Labels, "liqo.io/remote-cluster-id") })
	require.Empty(t, claimsOn(system, []offloadingv1beta1.NamespaceMap{*mapOf("evil", map[string]string{"a": "kube-system"})}))
}
