package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
)

// sentOn: the NamespaceOffloading of a consumer's namespace is kept as the broker wants it, and goes when the namespace is
// a consumer's no longer.
func (c *chain) sentOn(t *testing.T) {
	consumer := c.consumers[0]
	name := client.ObjectKey{Namespace: consumer.RemoteNamespace(c.offload(t, consumer)), Name: consts.DefaultNamespaceOffloadingName}
	strategy := func(ctx context.Context) (offloadingv1beta1.PodOffloadingStrategyType, error) {
		var offloading offloadingv1beta1.NamespaceOffloading
		err := c.broker.Client.Get(ctx, name, &offloading)
		return offloading.Spec.PodOffloadingStrategy, err
	}
	eventually(t, followTime, func(ctx context.Context) error { _, err := strategy(ctx); return err })

	patch := func(o client.Object, body string) {
		t.Helper()
		require.NoError(t, c.broker.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(body))))
	}
	offloading := &offloadingv1beta1.NamespaceOffloading{}
	offloading.Namespace, offloading.Name = name.Namespace, name.Name
	patch(offloading, `{"spec":{"podOffloadingStrategy":"LocalAndRemote"}}`)
	eventually(t, followTime, func(ctx context.Context) error {
		is, err := strategy(ctx)
		if err == nil && is != offloadingv1beta1.RemotePodOffloadingStrategyType {
			err = fmt.Errorf("the strategy is %s", is)
		}
		return err
	})

	namespace := &corev1.Namespace{}
	namespace.Name = name.Namespace
	require.NoError(t, c.broker.Client.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
	managed := namespace.Annotations[consts.RemoteNamespaceManagedByAnnotationKey]
	patch(namespace, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, consts.RemoteNamespaceManagedByAnnotationKey))
	eventually(t, followTime, func(ctx context.Context) error {
		if _, err := strategy(ctx); !kerrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	})
	// As it was, so that it goes with the consumer's.
	patch(namespace, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, consts.RemoteNamespaceManagedByAnnotationKey, managed))
	eventually(t, followTime, func(ctx context.Context) error { _, err := strategy(ctx); return err })
}

// overtaken: a pod that arrives before its namespace is sent on, because the broker is away, is made anew once it is, and
// runs at a provider.
func (c *chain) overtaken(t *testing.T) {
	consumer := c.consumers[1]
	require.NoError(t, c.Kill(brokerComponent))
	c.revive(t, brokerComponent)
	ns := c.offload(t, consumer)
	c.pod(t, consumer, ns, "early", "true")
	var before corev1.Pod
	atBroker := client.ObjectKey{Namespace: consumer.RemoteNamespace(ns), Name: "early"}
	eventually(t, patient, func(ctx context.Context) error { return c.broker.Client.Get(ctx, atBroker, &before) })
	require.Empty(t, before.Spec.NodeName)

	require.NoError(t, c.Restart(t.Context(), brokerComponent))
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 1) })
	after := podOf(t, c.broker, atBroker.Namespace, atBroker.Name)
	require.NotEqual(t, before.UID, after.UID, "it cannot be let onto the broker's node")
	require.Equal(t, brokerNode, after.Spec.NodeName)
}
