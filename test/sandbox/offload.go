package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
)

const offloadTimeout = time.Minute

// RemoteNamespace returns the name of a cluster's namespace in the clusters to which it is offloaded.
func (c *Cluster) RemoteNamespace(namespace string) string { return namespace + "-" + c.Name }

// Offload creates the namespace, unless it exists, offloads it to all clusters whose resources c uses, and waits until
// pods created in it would be offloaded.
func (c *Cluster) Offload(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, offloadTimeout)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := c.Client.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	offloading := &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Name: consts.DefaultNamespaceOffloadingName, Namespace: namespace},
		Spec: offloadingv1beta1.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: offloadingv1beta1.DefaultNameMappingStrategyType,
			PodOffloadingStrategy:    offloadingv1beta1.RemotePodOffloadingStrategyType,
			ClusterSelector:          corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{}},
		},
	}
	// A broker creates the NamespaceOffloading in consumers' namespaces itself, so it may already exist.
	var refused error
	unavailable := poll(ctx, func(ctx context.Context) error {
		err := client.IgnoreAlreadyExists(c.Client.Create(ctx, offloading))
		if apierrors.IsInternalError(err) {
			return err // Liqo's webhook does not answer: it may be starting.
		}
		refused = err
		return nil
	})
	if err := errors.Join(unavailable, refused); err != nil {
		return err
	}
	for _, provider := range c.sandbox.providersOf(c) {
		if err := c.waitMapped(ctx, namespace, c.sandbox.Cluster(provider)); err != nil {
			return err
		}
	}
	return poll(ctx, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil {
			return err
		}
		if ns.Labels[consts.SchedulingLiqoLabel] != consts.SchedulingLiqoLabelValue {
			return fmt.Errorf("namespace %s of %s is not marked for offloading yet", namespace, c.Name)
		}
		return nil
	})
}

func (c *Cluster) waitMapped(ctx context.Context, namespace string, provider *Cluster) error {
	return poll(ctx, func(ctx context.Context) error {
		var ns corev1.Namespace
		if err := provider.Client.Get(ctx, client.ObjectKey{Name: c.RemoteNamespace(namespace)}, &ns); err != nil {
			return err
		}
		// The map's entry is Ready only after the remote namespace exists.
		var maps offloadingv1beta1.NamespaceMapList
		if err := c.Client.List(ctx, &maps, client.InNamespace(tenantNamespace(provider.Name))); err != nil {
			return err
		}
		for i := range maps.Items {
			m := maps.Items[i].Status.CurrentMapping[namespace]
			if m.Phase == offloadingv1beta1.MappingAccepted {
				return nil
			}
		}
		return fmt.Errorf("namespace %s of %s is not mapped at %s yet", namespace, c.Name, provider.Name)
	})
}

// Unoffload undoes Offload but keeps the namespace, and waits until the remote namespaces are gone.
func (c *Cluster) Unoffload(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, offloadTimeout)
	defer cancel()
	offloading := &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Name: consts.DefaultNamespaceOffloadingName, Namespace: namespace},
	}
	if err := c.Client.Delete(ctx, offloading); err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(offloading), offloading); !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s is still offloaded", namespace)
		}
		for _, provider := range c.sandbox.providersOf(c) {
			var ns corev1.Namespace
			err := c.sandbox.Cluster(provider).Client.Get(ctx, client.ObjectKey{Name: c.RemoteNamespace(namespace)}, &ns)
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("namespace %s still exists at %s", c.RemoteNamespace(namespace), provider)
			}
		}
		return nil
	})
}
