package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	ipammapping "github.com/liqotech/liqo/pkg/utils/ipam/mapping"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// TestStockConsumer uses a consumer with Liqo's own virtual kubelet. It tests the guarantees of deploy/ against that,
// the addresses that it shows, and finally its replacement by ours.
func TestStockConsumer(t *testing.T) {
	aside(t)
	b := startBroker(t, sandbox.Options{
		Name: "stockconsumer", Consumers: 1, Providers: 2, Networking: true, Image: sandbox.ImageStock,
	})
	c := &chain{brokered: b, consumers: []*sandbox.Cluster{b.consumer}}
	t.Run("the guard and the manifests", b.guardAndManifests)
	t.Run("plain addresses", c.plainAddresses)
	t.Run("opaque addresses", c.opaqueAddresses)
	t.Run("ours takes over", func(t *testing.T) {
		takeover(t, &federation{
			Sandbox: b.Sandbox, image: sandbox.ImageStock, local: b.consumer, remote: b.broker, node: sandbox.Broker,
		})
	})
}

// plainAddresses tests a broker without options for such consumers. The pods show Liqo's mapping of the address of the
// broker's pod, by the Configuration of the broker alone.
func (c *chain) plainAddresses(t *testing.T) {
	ns := c.offload(t, c.consumer)
	c.pod(t, c.consumer, ns, "pod", "true")
	eventually(t, patient, func(ctx context.Context) error {
		if err := allRunning(ctx, c.consumer, ns, 1); err != nil {
			return err
		}
		at, err := c.placeOf(ctx, c.consumer, ns, "pod")
		if err != nil {
			return err
		}
		inBroker, err := seen(ctx, c.broker, at.provider, at.address)
		if err != nil {
			return err
		}
		var conf networkingv1beta1.Configuration
		key := client.ObjectKey{Namespace: "liqo-tenant-" + c.broker.Name, Name: c.broker.Name}
		if err := c.consumer.Client.Get(ctx, key, &conf); err != nil {
			return err
		}
		want, err := ipammapping.MapAddressWithConfiguration(&conf, inBroker.String())
		if err != nil {
			return err
		}
		if got := podOf(t, c.consumer, ns, "pod").Status.PodIP; got != want {
			return fmt.Errorf("the pod shows %q, Liqo makes %q of the broker's %s", got, want, inBroker)
		}
		return nil
	})
}

// opaqueAddresses tests a broker that shows external addresses, before and after the pods have moved.
func (c *chain) opaqueAddresses(t *testing.T) {
	const flag = "--opaque-addresses=true"
	for _, provider := range c.providers {
		c.changeKubelet(t, provider.Name, func(container *corev1.Container) { container.Args = append(container.Args, flag) })
	}
	for _, provider := range c.providers {
		eventually(t, patient, func(ctx context.Context) error { return c.kubeletHas(ctx, provider.Name, flag) })
		require.NoError(t, c.broker.WaitVirtualKubelet(t.Context(), provider.Name, provider.Name))
	}
	opaque := *c
	opaque.opaque = true
	ns := c.offload(t, c.consumer)
	for i := range 4 {
		c.pod(t, c.consumer, ns, fmt.Sprintf("pod-%d", i), "true")
	}
	eventually(t, patient, func(ctx context.Context) error { return opaque.rightlyShown(ctx, c.consumer, ns, 4) })
	c.restore(t, "provider1")
	c.decide(t, "provider1", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	eventually(t, followTime, func(ctx context.Context) error {
		for i := range 4 {
			if at, err := c.placeOf(ctx, c.consumer, ns, fmt.Sprintf("pod-%d", i)); err != nil || at.provider.Name == "provider1" {
				return fmt.Errorf("pod-%d is still at provider1: %w", i, err)
			}
		}
		return opaque.rightlyShown(ctx, c.consumer, ns, 4)
	})
}

// kubeletHas returns nil if all replicas of the virtual kubelet of a provider run with an argument.
func (c *chain) kubeletHas(ctx context.Context, provider, argument string) error {
	var d appsv1.Deployment
	if err := c.broker.Client.Get(ctx, client.ObjectKey{Namespace: "liqo-tenant-" + provider, Name: "vk-" + provider}, &d); err != nil {
		return err
	}
	if !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, argument) || d.Status.ObservedGeneration < d.Generation ||
		d.Status.UpdatedReplicas == 0 || d.Status.UpdatedReplicas != d.Status.Replicas || d.Status.AvailableReplicas != d.Status.Replicas {
		return fmt.Errorf("deployment %s is not rolled out with %s: %+v", d.Name, argument, d.Status)
	}
	return nil
}

// takeover lets our virtual kubelet take over a node of Liqo's own while pods run there. No pod is recreated, and new
// pods run.
func takeover(t *testing.T, f *federation) {
	local, remote := f.namespaces(t)
	require.NoError(t, f.local.Client.Create(t.Context(), newDeployment(local, "web", 20)))
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.local, local, 20) })
	here, there := uids(t, f.local, local), uids(t, f.remote, remote)

	require.NoError(t, f.local.UseImage(t.Context(), sandbox.ImageOurs))
	f.runPod(t, newPod(local, "after"))
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.local, local, 21) })
	assert.Subset(t, uids(t, f.local, local), here, "no local pod was recreated")
	assert.Subset(t, uids(t, f.remote, remote), there, "no remote pod was recreated")
}
