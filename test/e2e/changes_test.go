package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// changes tests changes that an API server accepts and Liqo does not forward: either an event reports them, or the
// virtual kubelet applies them.
func (c *chain) changes(t *testing.T) {
	consumer := c.consumers[0]
	namespace := c.offload(t, consumer)

	c.pod(t, consumer, namespace, "web", "provider.id == 'provider1'")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, namespace, 1) })
	pod := podOf(t, consumer, namespace, "web")
	for cluster, at := range map[*sandbox.Cluster]string{
		consumer: pod.Spec.NodeName, c.broker: podOf(t, c.broker, consumer.RemoteNamespace(namespace), "web").Spec.NodeName,
	} {
		var node corev1.Node
		require.NoError(t, cluster.Client.Get(t.Context(), client.ObjectKey{Name: at}, &node))
		require.Equal(t, "virtual-kubelet", node.Labels["type"])
	}
	container := pod.Spec.Containers[0].Name
	image := fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":"example.com/other"}]}}`, container)
	require.NoError(t, consumer.Client.Patch(t.Context(), pod, client.RawPatch(types.StrategicMergePatchType, []byte(image))))
	eventually(t, patient, func(ctx context.Context) error {
		return event(ctx, consumer, pod, "ChangeNotForwarded", fmt.Sprintf("image of container %q", container))
	})
	pod = podOf(t, consumer, namespace, "web")
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: "example.com/debug", ImagePullPolicy: corev1.PullIfNotPresent,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}}}
	require.NoError(t, consumer.Client.SubResource("ephemeralcontainers").Update(t.Context(), pod))
	eventually(t, patient, func(ctx context.Context) error {
		return event(ctx, consumer, pod, "ChangeNotForwarded", `ephemeral container "debugger"`)
	})
	at, err := c.placeOf(t.Context(), consumer, namespace, "web")
	require.NoError(t, err)
	there := podOf(t, at.provider, c.broker.RemoteNamespace(consumer.RemoteNamespace(namespace)), "web")
	require.NotEqual(t, "example.com/other", there.Spec.Containers[0].Image)
	require.Empty(t, there.Spec.EphemeralContainers)

	c.immutable(t, consumer, namespace)
}

// immutable checks that immutable objects that are deleted and created again at once have their new data at the broker
// and at the provider.
func (c *chain) immutable(t *testing.T, consumer *sandbox.Cluster, namespace string) {
	atBroker := consumer.RemoteNamespace(namespace)
	shows := func(data string) {
		t.Helper()
		eventually(t, patient, func(ctx context.Context) error {
			for cluster, in := range map[*sandbox.Cluster]string{c.broker: atBroker, c.providers[0]: c.broker.RemoteNamespace(atBroker)} {
				var configMap corev1.ConfigMap
				var secret corev1.Secret
				if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: in, Name: "fixed"}, &configMap); err != nil {
					return err
				}
				if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: in, Name: "fixed"}, &secret); err != nil {
					return err
				}
				if configMap.Data["k"] != data || string(secret.Data["k"]) != data || !ptr.Deref(configMap.Immutable, false) {
					return fmt.Errorf("%s has %v and %s, want %s", cluster.Name, configMap.Data, secret.Data, data)
				}
			}
			return nil
		})
	}
	create := func(data string) {
		t.Helper()
		meta := metav1.ObjectMeta{Namespace: namespace, Name: "fixed"}
		for _, o := range []client.Object{
			&corev1.ConfigMap{ObjectMeta: meta, Immutable: ptr.To(true), Data: map[string]string{"k": data}},
			&corev1.Secret{ObjectMeta: meta, Immutable: ptr.To(true), Data: map[string][]byte{"k": []byte(data)}},
		} {
			require.NoError(t, client.IgnoreNotFound(consumer.Client.Delete(t.Context(), o.DeepCopyObject().(client.Object))))
			require.NoError(t, consumer.Client.Create(t.Context(), o))
		}
	}
	create("one")
	shows("one")
	create("two") // The virtual kubelets see an update.
	shows("two")
}
