package simulate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func clusterOf(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Reader {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	node := func(o client.Object) []string {
		if pod, is := o.(*corev1.Pod); is {
			return []string{pod.Spec.NodeName}
		}
		return nil
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithIndex(&corev1.Pod{}, "spec.nodeName", node).
		WithInterceptorFuncs(funcs).Build()
}

func cores(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

func providerIn(id string, ready metav1.ConditionStatus) *v1alpha1.ProviderCluster {
	amounts := corev1.ResourceList{"cpu": *cores(4), "memory": *cores(64 << 30), "pods": *cores(10)}
	return &v1alpha1.ProviderCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Status: v1alpha1.ProviderClusterStatus{
			Conditions:   []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: ready}},
			VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: id + "-a", Resources: v1alpha1.Resources{Granted: amounts}}},
		},
	}
}

func podIn(namespace, name string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name),
			Labels: map[string]string{"app": "web", v1alpha1.ProviderLabel: "oslo", v1alpha1.VirtualNodeLabel: "oslo-a"},
			Annotations: map[string]string{
				v1alpha1.FailoverAnnotation: "Never", v1alpha1.DecisionAnnotation: "oslo 90",
				v1alpha1.AssignedAtAnnotation: "2026-03-01T00:00:00Z",
			},
		},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{
			{Name: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": *cores(1)}}},
			{Name: "b", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": *cores(1)}}},
		}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func TestFromCluster(t *testing.T) {
	consumer := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "web-shop", Labels: map[string]string{consts.RemoteClusterID: "shop", "tier": "gold"},
		Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant-shop/shop"},
	}}
	cluster := clusterOf(t, interceptor.Funcs{},
		providerIn("oslo", metav1.ConditionTrue), providerIn("turin", metav1.ConditionFalse),
		&v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "former"}},
		&offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-oslo", Name: "oslo-a"},
			Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: "oslo", Labels: map[string]string{"arch": "arm64"}},
		},
		&v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: v1alpha1.PlacementPolicySpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}},
			Filter:            "provider.labels['arch'] == 'arm64'",
		}},
		consumer, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own"}},
		podIn("web-shop", "there", nil), podIn("own", "mine", nil),
		podIn("web-shop", "waits", func(p *corev1.Pod) { p.Labels, p.Annotations = nil, nil }),
		podIn("web-shop", "ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		podIn("web-shop", "terminating", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = ptr.To(metav1.Now()), []string{"test/keep"}
		}),
		podIn("web-shop", "elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "other" }),
		podIn("web-shop", "lost", func(p *corev1.Pod) { p.Labels[v1alpha1.ProviderLabel] = "former" }),
	)
	base, err := FromCluster(t.Context(), cluster, nodeName, time.Date(2026, 3, 2, 9, 30, 0, 7, time.UTC))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "s.yaml")
	require.NoError(t, os.WriteFile(file, []byte(
		"{duration: 3h, consumers: [], "+
			"events: [{at: 1h, provider: turin, action: Recover}, {at: 2h, provider: oslo, action: Drain}]}"), 0o600))
	sc, err := Load(file, base)
	require.NoError(t, err)
	require.Equal(t, "2026-03-02T09:30:00Z", sc.Start.UTC().Format(time.RFC3339))
	r, err := Run(t.Context(), sc, options())
	require.NoError(t, err)
	checkReport(t, sc, r)
	places := map[string][]string{}
	for _, of := range r.records {
		places[of.consumer+":"+of.name] = of.places
	}
	require.Equal(t, map[string][]string{
		"shop:there-1": {"oslo"}, "this-cluster:mine-1": {"oslo", "turin"}, // By the policy only oslo is for the shop.
		"shop:waits-1": nil, "shop:lost-1": nil,
	}, places)
	require.Equal(t, 2, r.Pods.Never, "there was no capacity at oslo")

	// A file with providers and policies of its own has the pods only.
	require.NoError(t, os.WriteFile(file, []byte(
		"{duration: 1h, start: 2026-01-01T00:00:00Z, consumers: [], policies: [], "+
			"providers: [{id: oslo, granted: {cpu: 40, memory: 1Gi}}]}"), 0o600))
	base.Consumers[0].Workloads[0].AssignedTo = nil
	sc, err = Load(file, base)
	require.NoError(t, err)
	require.Empty(t, sc.ProviderClusters)
	require.Empty(t, sc.Policies)
	require.Equal(t, 2026, sc.Start.Year())
	require.Len(t, sc.Consumers, 2)

	list := func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
		if _, pods := l.(*corev1.PodList); pods {
			return errDown
		}
		return c.List(ctx, l, o...)
	}
	failing := clusterOf(t, interceptor.Funcs{List: list})
	_, err = FromCluster(t.Context(), failing, nodeName, time.Now())
	require.ErrorIs(t, err, errDown)
}

var errDown = errors.New("down")
