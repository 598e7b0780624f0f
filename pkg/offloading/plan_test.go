package offloading

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeaffinity "k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
)

// arrived is a namespace as Liqo makes it for consumer c1.
func arrived(change ...func(*corev1.Namespace)) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop-c1", UID: "ns-uid",
		Labels: map[string]string{"liqo.io/remote-cluster-id": "c1"},
		Annotations: map[string]string{
			"liqo.io/managed-by-namespace-map": "liqo-tenant-c1/c1", "liqo.io/original-name": "shop",
		},
	}}
	for _, c := range change {
		c(ns)
	}
	return ns
}

// made is the NamespaceOffloading that the broker makes for it.
func made(change ...func(*offloadingv1beta1.NamespaceOffloading)) *offloadingv1beta1.NamespaceOffloading {
	o := wanted(arrived(), "c1", offloadingv1beta1.DefaultNameMappingStrategyType)
	for _, c := range change {
		c(o)
	}
	return o
}

func TestPlan(t *testing.T) {
	now := metav1.Now()
	notOurs := func(o *offloadingv1beta1.NamespaceOffloading) { o.Labels = nil }
	going := func(o *offloadingv1beta1.NamespaceOffloading) { o.DeletionTimestamp = &now }
	changed := func(o *offloadingv1beta1.NamespaceOffloading) {
		o.Spec.PodOffloadingStrategy = offloadingv1beta1.LocalPodOffloadingStrategyType
	}
	homeMade := func(ns *corev1.Namespace) { ns.Labels, ns.Annotations = nil, nil }
	for name, tc := range map[string]struct {
		namespace  *corev1.Namespace
		existing   *offloadingv1beta1.NamespaceOffloading
		unselected bool
		want       action
	}{
		"a namespace that arrives is sent on": {namespace: arrived(), want: create},
		"one that is sent on stays as it is":  {namespace: arrived(), existing: made(), want: leave},
		"ours is kept as the broker wants it": {namespace: arrived(), existing: made(changed), want: update},
		"one made by a person is never changed": {
			namespace: arrived(), existing: made(changed, notOurs), want: leave,
		},
		"nor removed": {
			namespace: arrived(homeMade), existing: made(notOurs), want: leave,
		},
		"one that is being deleted is waited for": {
			namespace: arrived(), existing: made(going, changed), want: leave,
		},
		"a namespace of this cluster is left alone":        {namespace: arrived(homeMade), want: leave},
		"one that is not a consumer's any more loses ours": {namespace: arrived(homeMade), existing: made(), want: remove},
		"that of a consumer not selected is left alone":    {namespace: arrived(), unselected: true, want: leave},
		"and keeps what it has when its consumer is no longer selected": {
			namespace: arrived(), existing: made(changed), unselected: true, want: leave,
		},
		"a tenant namespace has the label only": {
			namespace: arrived(func(ns *corev1.Namespace) { ns.Annotations = nil }), want: leave,
		},
		"a namespace that goes takes all with it": {
			namespace: arrived(func(ns *corev1.Namespace) { ns.DeletionTimestamp = &now }), want: leave,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, object := plan(tc.namespace, tc.existing, !tc.unselected, offloadingv1beta1.DefaultNameMappingStrategyType)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.want == create || tc.want == update, object != nil)
			if tc.want == update {
				require.Equal(t, made().Spec, object.Spec)
			}
		})
	}
}

func TestTheMappingStaysAsItWasWhenTheFlagChanges(t *testing.T) {
	got, _ := plan(arrived(), made(), true, offloadingv1beta1.EnforceSameNameMappingStrategyType)
	require.Equal(t, leave, got)
	_, object := plan(arrived(), nil, true, offloadingv1beta1.EnforceSameNameMappingStrategyType)
	require.Equal(t, offloadingv1beta1.EnforceSameNameMappingStrategyType, object.Spec.NamespaceMappingStrategy)
}

// The same terms choose the clusters and become the node affinity of the pods.
func TestTheSelectorTakesEveryClusterButTheOriginAndTheBrokersNode(t *testing.T) {
	selector, err := nodeaffinity.NewNodeSelector(&made().Spec.ClusterSelector)
	require.NoError(t, err)
	for cluster, want := range map[string]bool{"c1": false, "c2": true, "p1": true, "": true} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"liqo.io/type": "virtual-node"}}}
		if cluster != "" {
			node.Labels["liqo.io/remote-cluster-id"] = cluster
		}
		require.Equal(t, want, selector.Match(node), cluster)
	}
}
