package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// admission checks that pods run although admission in the clusters on the way changes them. A pod that is evicted at
// its provider is removed.
func (c *chain) admission(t *testing.T) {
	consumer := c.consumers[0]
	namespace := c.offload(t, consumer)
	atProvider := c.broker.RemoteNamespace(consumer.RemoteNamespace(namespace))
	c.pod(t, consumer, namespace, "before", "provider.id == 'provider1'")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, namespace, 1) })
	for _, provider := range c.providers {
		limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: atProvider, Name: "defaults"}}
		limits.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceEphemeralStorage: resource.MustParse("1Mi"),
		}}}
		eventually(t, patient, func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(provider.Client.Create(ctx, limits.DeepCopy()))
		})
	}

	limited := newPod(namespace, "limited")
	limited.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	require.NoError(t, consumer.Client.Create(t.Context(), limited))
	spread := newDeployment(namespace, "spread", 1)
	spread.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: spread.Spec.Selector, MatchLabelKeys: []string{"pod-template-hash"},
	}}
	require.NoError(t, consumer.Client.Create(t.Context(), spread))
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, namespace, 3) })
	require.Equal(t, corev1.PodQOSBestEffort, podOf(t, consumer, namespace, "limited").Status.QOSClass)

	c.evictedThere(t, consumer, namespace)
}

// evictedThere evicts a pod of a Deployment at its provider as a kubelet reports it: with a terminal phase before the
// pod is removed.
func (c *chain) evictedThere(t *testing.T, consumer *sandbox.Cluster, namespace string) {
	var evicted *corev1.Pod
	list, err := pods(t.Context(), consumer, namespace)
	require.NoError(t, err)
	for i := range list {
		if list[i].Labels["app"] == "spread" {
			evicted = &list[i]
		}
	}
	require.NotNil(t, evicted)
	at, err := c.placeOf(t.Context(), consumer, namespace, evicted.Name)
	require.NoError(t, err)
	key := client.ObjectKey{Namespace: c.broker.RemoteNamespace(consumer.RemoteNamespace(namespace)), Name: evicted.Name}
	setStatus(t, at.provider, key, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodFailed
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", LastTransitionTime: metav1.Now(),
		})
	})
	require.NoError(t, client.IgnoreNotFound(at.provider.Client.Delete(t.Context(), podOf(t, at.provider, key.Namespace, key.Name))))
	eventually(t, patient, func(ctx context.Context) error {
		var pod corev1.Pod
		if err := consumer.Client.Get(ctx, client.ObjectKeyFromObject(evicted), &pod); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("pod %s is %s: %w", evicted.Name, pod.Status.Phase, err)
		}
		return c.rightlyShown(ctx, consumer, namespace, 3)
	})
}
