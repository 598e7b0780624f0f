package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// sentOn checks that the broker keeps the NamespaceOffloading of a consumer's namespace as it should be, and deletes it
// when the namespace no longer belongs to a consumer. The consumer's claim on the name is then reported.
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
	eventually(t, followTime, func(ctx context.Context) error { return c.collides(ctx, name.Namespace, corev1.ConditionTrue) })
	eventually(t, followTime, func(ctx context.Context) error { return c.warned(ctx, consumer, name.Namespace) })
	// Restore it, so that the namespace is deleted with the consumer's.
	patch(namespace, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, consts.RemoteNamespaceManagedByAnnotationKey, managed))
	eventually(t, followTime, func(ctx context.Context) error { return c.collides(ctx, name.Namespace, corev1.ConditionFalse) })
	eventually(t, followTime, func(ctx context.Context) error { _, err := strategy(ctx); return err })
}

// collides returns nil if the condition of a namespace of the broker's cluster has that status.
func (c *chain) collides(ctx context.Context, namespace string, want corev1.ConditionStatus) error {
	var is corev1.Namespace
	if err := c.broker.Client.Get(ctx, client.ObjectKey{Name: namespace}, &is); err != nil {
		return err
	}
	for i := range is.Status.Conditions {
		if is.Status.Conditions[i].Type == brokeringv1alpha1.ConditionNameCollision && is.Status.Conditions[i].Status == want {
			return nil
		}
	}
	return fmt.Errorf("the conditions of %s: %v", namespace, is.Status.Conditions)
}

// warned returns nil if an event of the consumer's NamespaceMap names a namespace that is taken.
func (c *chain) warned(ctx context.Context, consumer *sandbox.Cluster, namespace string) error {
	var events corev1.EventList
	if err := c.broker.Client.List(ctx, &events, client.InNamespace("liqo-tenant-"+consumer.Name)); err != nil {
		return err
	}
	for i := range events.Items {
		e := &events.Items[i]
		if e.InvolvedObject.Kind == "NamespaceMap" && e.Reason == "NamespaceTaken" && strings.Contains(e.Message, namespace) {
			return nil
		}
	}
	return fmt.Errorf("none of %d events says that %s is taken", len(events.Items), namespace)
}

// overtaken tests a pod that arrives before its namespace is offloaded, because the broker is down. It is rejected
// until then, and runs at a provider afterwards.
func (c *chain) overtaken(t *testing.T) {
	consumer := c.consumers[1]
	require.NoError(t, c.Kill(brokerComponent))
	c.revive(t, brokerComponent)
	ns := c.offload(t, consumer)
	c.pod(t, consumer, ns, "early", "true")
	atBroker := client.ObjectKey{Namespace: consumer.RemoteNamespace(ns), Name: "early"}
	eventually(t, patient, func(ctx context.Context) error { return refusedToCreate(ctx, c.broker, atBroker, notOffloaded) })
	err := c.broker.Client.Get(t.Context(), atBroker, &corev1.Pod{})
	require.True(t, kerrors.IsNotFound(err), "it would run on a node of the broker's cluster: %v", err)

	require.NoError(t, c.Restart(t.Context(), brokerComponent))
	// Liqo's controller doubles its delay after each attempt.
	eventually(t, 2*patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 1) })
	require.Equal(t, brokerNode, podOf(t, c.broker, atBroker.Namespace, atBroker.Name).Spec.NodeName)
}

// notOffloaded is the guard's reason to reject the pods of a namespace that the broker has not offloaded yet.
const notOffloaded = "the namespace of this ShadowPod is not offloaded yet"

// refusedToCreate returns nil if an event of Liqo's controller reports that it could not create the pod of a ShadowPod,
// with the reason.
func refusedToCreate(ctx context.Context, c *sandbox.Cluster, shadow client.ObjectKey, because string) error {
	var events corev1.EventList
	if err := c.Client.List(ctx, &events, client.InNamespace(shadow.Namespace)); err != nil {
		return err
	}
	for i := range events.Items {
		e := &events.Items[i]
		if e.InvolvedObject.Kind == "ShadowPod" && e.InvolvedObject.Name == shadow.Name && e.Reason == "FailedCreatePod" &&
			strings.Contains(e.Message, because) {
			return nil
		}
	}
	return fmt.Errorf("none of %d events says that %s was not created because %s", len(events.Items), shadow, because)
}
