package offloading

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newReconciler(t *testing.T, selector string, objects ...client.Object) *reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, offloadingv1beta1.AddToScheme, liqov1beta1.AddToScheme,
	} {
		require.NoError(t, add(scheme))
	}
	consumers, err := labels.Parse(selector)
	require.NoError(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return &reconciler{
		cfg: Config{
			Consumers: consumers, Mapping: offloadingv1beta1.DefaultNameMappingStrategyType, BrokerNode: "liqo-broker",
		},
		client: c, pods: c, live: c, events: record.NewFakeRecorder(100),
		metrics: NewMetrics(nil), now: func() time.Time { return began.Add(time.Minute) },
	}
}

func reconcileOnce(t *testing.T, r *reconciler) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "shop-c1"}})
	require.NoError(t, err)
	return result
}

func offloaded(t *testing.T, r *reconciler) *offloadingv1beta1.NamespaceOffloading {
	t.Helper()
	o, err := r.offloadingOf(t.Context(), "shop-c1")
	require.NoError(t, err)
	return o
}

func TestANamespaceIsSentOnAndNoLonger(t *testing.T) {
	r, registry := newReconciler(t, "", arrived()), prometheus.NewPedanticRegistry()
	r.metrics = NewMetrics(registry)
	reconcileOnce(t, r)
	require.Equal(t, made().Spec, offloaded(t, r).Spec)

	changed := offloaded(t, r)
	changed.Spec.ClusterSelector.NodeSelectorTerms = nil
	require.NoError(t, r.client.Update(t.Context(), changed))
	reconcileOnce(t, r)
	require.Equal(t, made().Spec, offloaded(t, r).Spec, "ours is changed back")

	home := arrived(func(ns *corev1.Namespace) { ns.Annotations = nil })
	require.NoError(t, r.client.Update(t.Context(), home))
	reconcileOnce(t, r)
	require.Nil(t, offloaded(t, r))

	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
		# HELP liqo_broker_namespace_offloadings_total NamespaceOffloadings of consumers' namespaces that were created, changed back or removed, by action.
		# TYPE liqo_broker_namespace_offloadings_total counter
		liqo_broker_namespace_offloadings_total{action="changed_back"} 1
		liqo_broker_namespace_offloadings_total{action="created"} 1
		liqo_broker_namespace_offloadings_total{action="removed"} 1
	`), "liqo_broker_namespace_offloadings_total"))
}

func TestOnlySelectedConsumersAreLookedAfter(t *testing.T) {
	foreign := func(gold string) *liqov1beta1.ForeignCluster {
		return &liqov1beta1.ForeignCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"gold": gold}},
			Spec:       liqov1beta1.ForeignClusterSpec{ClusterID: "c1"},
		}
	}
	for name, tc := range map[string]struct {
		selector string
		objects  []client.Object
		want     bool
	}{
		"none is asked for":                   {want: true},
		"the labels match":                    {selector: "gold=yes", objects: []client.Object{foreign("yes")}, want: true},
		"they do not":                         {selector: "gold=yes", objects: []client.Object{foreign("no")}},
		"an unknown consumer is not selected": {selector: "gold!=no"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t, tc.selector, append(tc.objects, arrived())...)
			reconcileOnce(t, r)
			require.Equal(t, tc.want, offloaded(t, r) != nil)
		})
	}
}

// waiting is a pod that the ShadowPod controller made, as it is before the NamespaceOffloading took effect.
func waiting(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop-c1", UID: "web-uid", CreationTimestamp: metav1.NewTime(began),
			Labels: map[string]string{"liqo.io/managed-by": "shadowpod"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "offloading.liqo.io/v1beta1", Kind: "ShadowPod", Name: "web", UID: "shadow-uid", Controller: ptr.To(true),
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func TestWhichPodsOvertook(t *testing.T) {
	now := metav1.Now()
	status := func(s corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: s}} }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"one that nothing was added to":            {change: func(*corev1.Pod) {}, want: true},
		"one bound to a real node, still starting": {change: func(p *corev1.Pod) { p.Spec.NodeName = "worker" }, want: true},
		"one whose container waits": {
			change: status(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}), want: true,
		},
		"one that was faster still, and runs": {want: true, change: func(p *corev1.Pod) {
			status(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})(p)
			p.Status.Phase, p.Spec.NodeName = corev1.PodRunning, "worker"
		}},
		"not one that has run since before the namespace arrived": {change: func(p *corev1.Pod) {
			status(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})(p)
			p.Status.Phase, p.Spec.NodeName = corev1.PodRunning, "worker"
			p.CreationTimestamp = metav1.NewTime(began.Add(-2 * time.Minute))
		}},
		"one that has waited for a node since before that": {want: true, change: func(p *corev1.Pod) {
			p.CreationTimestamp = metav1.NewTime(began.Add(-2 * time.Minute))
		}},
		"not one that is done":                 {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"not one on the broker's node":         {change: func(p *corev1.Pod) { p.Spec.NodeName = "liqo-broker" }},
		"not one that is going":                {change: func(p *corev1.Pod) { p.DeletionTimestamp = &now }},
		"not one of a person":                  {change: func(p *corev1.Pod) { p.OwnerReferences = nil }},
		"not one of a ReplicaSet":              {change: func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }},
		"not one of another kind of ShadowPod": {change: func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "example.org/v1" }},
		"not one with a runtime class":         {change: func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("liqo") }},
		"not one that the webhook saw": {change: func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "virtual-node.liqo.io/not-allowed", Operator: "Exists", Effect: "NoExecute"}}
		}},
		"one with another toleration": {want: true, change: func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"}}
		}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, overtook(waiting(tc.change), "liqo-broker", began)) })
	}
}

func TestAPodThatOvertookIsMadeAnewOnceItCanGoSomewhere(t *testing.T) {
	ready := func(o *offloadingv1beta1.NamespaceOffloading) {
		o.Status.RemoteNamespacesConditions = map[string]offloadingv1beta1.RemoteNamespaceConditions{
			"p1": {{Type: offloadingv1beta1.NamespaceReady, Status: corev1.ConditionFalse}},
			"p2": {{Type: offloadingv1beta1.NamespaceReady, Status: corev1.ConditionTrue}},
		}
	}
	enabled := func(ns *corev1.Namespace) { ns.Labels["liqo.io/scheduling-enabled"] = "true" }
	shadow := func(age time.Duration) *offloadingv1beta1.ShadowPod {
		return &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop-c1", CreationTimestamp: metav1.NewTime(began.Add(-age)),
		}}
	}
	for name, tc := range map[string]struct {
		objects []client.Object
		gone    bool
		again   time.Duration
	}{
		"in effect":                          {objects: []client.Object{arrived(enabled), made(ready), shadow(0)}, gone: true},
		"the webhook does not look here yet": {objects: []client.Object{arrived(), made(ready), shadow(0)}},
		"no provider has the namespace":      {objects: []client.Object{arrived(enabled), made(), shadow(0)}},
		"a NamespaceOffloading of another owner": {
			objects: []client.Object{
				arrived(enabled), made(ready, func(o *offloadingv1beta1.NamespaceOffloading) { o.Labels = nil }), shadow(0),
			},
		},
		"one that is not the first is waited for": {
			objects: []client.Object{arrived(enabled), made(ready), shadow(90 * time.Second)}, again: 30 * time.Second,
		},
		"no ShadowPod would recreate it": {objects: []client.Object{arrived(enabled), made(ready)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t, "", append(tc.objects, waiting())...)
			require.Equal(t, tc.again, reconcileOnce(t, r).RequeueAfter)
			err := r.client.Get(t.Context(), client.ObjectKeyFromObject(waiting()), &corev1.Pod{})
			require.Equal(t, tc.gone, kerrors.IsNotFound(err), err)
			require.Equal(t, tc.gone, testutil.ToFloat64(r.metrics.recreated) == 1)
		})
	}
}

// The interval of the repairs grows each time that the webhook did not mutate a ShadowPod's pod.
func TestRepairsBackOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := began
		var waits []time.Duration
		for range 12 {
			takes := time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds to create it again")) * time.Second
			podCreated := now.Add(takes)
			wait := repairIn(began, podCreated, podCreated)
			require.LessOrEqual(t, wait, longestRepair)
			if len(waits) > 0 {
				require.GreaterOrEqual(t, wait, min(2*waits[len(waits)-1], longestRepair))
			}
			waits = append(waits, wait)
			now = podCreated.Add(wait)
			require.Zero(t, repairIn(began, podCreated, now))
		}
		require.Equal(t, longestRepair, waits[len(waits)-1])
	})
}
