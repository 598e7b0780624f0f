package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// constrained tests the constraints in the pods' own fields: providers are the places that they are about.
func (b *brokered) constrained(t *testing.T) {
	for i, attributes := range []map[string]string{
		{"region": "eu", "zone": "eu-a"}, {"region": "eu", "zone": "eu-b"}, {"region": "us", "zone": "us-a"},
	} {
		b.restore(t, sandbox.Provider(i+1))
		b.decide(t, sandbox.Provider(i+1), func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Attributes = attributes })
	}
	b.zone(t, b.broker, brokerNode)
	spread := func(app string) []corev1.TopologySpreadConstraint {
		return []corev1.TopologySpreadConstraint{{
			TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
	}

	not := func(regions ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelTopologyRegion, Operator: corev1.NodeSelectorOpNotIn, Values: regions,
			}}}},
		}}}
	}

	t.Run("a consumer spreads over zones", func(t *testing.T) {
		const namespace = "zones"
		require.NoError(t, b.consumer.Offload(t.Context(), namespace))
		atBroker := b.consumer.RemoteNamespace(namespace)
		require.NoError(t, b.broker.Offload(t.Context(), atBroker))
		b.zone(t, b.consumer, b.broker.Name)
		web := newDeployment(namespace, "web", 6)
		web.Spec.Template.Spec.TopologySpreadConstraints = spread("web")
		require.NoError(t, b.consumer.Client.Create(t.Context(), web))
		// The Nodes of the providers have no zones.
		eventually(t, patient, func(ctx context.Context) error { return allRunning(ctx, b.consumer, namespace, 6) })
		b.settle(t, atBroker, 6)
		assert.Equal(t, map[string]int{"provider1": 2, "provider2": 2, "provider3": 2},
			b.count(t, atBroker, brokeringv1alpha1.ProviderLabel))

		// Liqo does not forward affinities: the consumer's virtual kubelet does.
		for i := range 4 {
			pod := newPod(namespace, fmt.Sprintf("abroad-%d", i))
			pod.Spec.Affinity = not("eu")
			require.NoError(t, b.consumer.Client.Create(t.Context(), pod))
		}
		for i := range 4 {
			name := fmt.Sprintf("abroad-%d", i)
			eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, atBroker, name, "provider3") })
		}
		require.NoError(t, b.consumer.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		b.settle(t, atBroker, 0)
	})

	t.Run("a node affinity limits the zones", func(t *testing.T) {
		ns := b.namespace(t)
		web := newDeployment(ns, "web", 6)
		web.Spec.Template.Spec.TopologySpreadConstraints = spread("web")
		web.Spec.Template.Spec.Affinity = not("us")
		require.NoError(t, b.broker.Client.Create(t.Context(), web))
		b.settle(t, ns, 6)
		assert.Equal(t, map[string]int{"provider1": 3, "provider2": 3}, b.count(t, ns, brokeringv1alpha1.ProviderLabel))

		nowhere := newPod(ns, "nowhere")
		nowhere.Spec.Affinity = not("eu", "us")
		require.NoError(t, b.broker.Client.Create(t.Context(), nowhere))
		b.explained(t, ns, nowhere.Name, "NoProviderFits", "no provider cluster fits: region in [eu us]")
	})

	t.Run("an anti-affinity keeps replicas at different providers", func(t *testing.T) {
		ns := b.namespace(t)
		alone := func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey:   brokeringv1alpha1.ProviderLabel,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "alone"}},
				}},
			}}
		}
		b.create(t, ns, "alone", 4, alone)
		var waits string
		eventually(t, patient, func(ctx context.Context) error {
			list, err := pods(ctx, b.broker, ns)
			if err != nil {
				return err
			}
			running := 0
			for i := range list {
				if at := list[i].Labels[brokeringv1alpha1.ProviderLabel]; at != "" && list[i].Status.Phase == corev1.PodRunning {
					running++
				} else {
					waits = list[i].Name
				}
			}
			if running != 3 {
				return fmt.Errorf("%d of 3 providers run a pod", running)
			}
			return nil
		})
		assert.Equal(t, map[string]int{"": 1, "provider1": 1, "provider2": 1, "provider3": 1},
			b.count(t, ns, brokeringv1alpha1.ProviderLabel))
		b.explained(t, ns, waits, "NoProviderFits", "anti-affinity to a pod in brokering.liqo.io/provider provider1")

		// The pod that waits follows the one that leaves.
		list, err := pods(t.Context(), b.broker, ns)
		require.NoError(t, err)
		leaves := slices.IndexFunc(list, func(p corev1.Pod) bool { return p.Labels[brokeringv1alpha1.ProviderLabel] == "provider2" })
		require.NoError(t, b.broker.Client.Delete(t.Context(), &list[leaves]))
		eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, waits, "provider2") })
	})
}

// zone gives a virtual node a zone, as an administrator does, until the test ends: kube-scheduler rejects Nodes without one
// for pods that must be spread over zones.
func (b *brokered) zone(t *testing.T, cluster *sandbox.Cluster, name string) {
	t.Helper()
	patch := func(ctx context.Context, zone string) error {
		body := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, corev1.LabelTopologyZone, zone)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return cluster.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(body)))
	}
	require.NoError(t, patch(t.Context(), `"brokered"`))
	t.Cleanup(func() { require.NoError(t, patch(context.Background(), "null")) })
}
