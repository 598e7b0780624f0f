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

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
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

// unknown: a ProviderCluster of a cluster that shares nothing goes, unless somebody has decided something about it.
func (b *brokered) unknown(t *testing.T) {
	create := func(name string, spec brokeringv1alpha1.ProviderClusterSpec) {
		t.Helper()
		pc := &brokeringv1alpha1.ProviderCluster{Spec: spec}
		pc.Name = name
		require.NoError(t, b.broker.Client.Create(t.Context(), pc))
		t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(b.broker.Client.Delete(context.Background(), pc))) })
	}
	create("decided", brokeringv1alpha1.ProviderClusterSpec{Cordoned: true})
	create("undecided", brokeringv1alpha1.ProviderClusterSpec{})
	eventually(t, followTime, func(ctx context.Context) error {
		var pc brokeringv1alpha1.ProviderCluster
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: "undecided"}, &pc); !kerrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: "decided"}, &pc); err != nil {
			return err
		}
		return readyIs(&pc, "NotPeered")
	})
}

// readyIs checks why a provider is not Ready.
func readyIs(pc *brokeringv1alpha1.ProviderCluster, reason string) error {
	for i := range pc.Status.Conditions {
		if c := &pc.Status.Conditions[i]; c.Type == brokeringv1alpha1.ProviderReady && c.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("%s is not %s: %v", pc.Name, reason, pc.Status.Conditions)
}
