package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication/forge"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam/wire"
	"github.com/capacitorset/liqo-broker-vk/pkg/selection"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// selections: a provider that one consumer has switched off gets none of its new pods, and the other consumer's all the
// same.
func (c *chain) selections(t *testing.T) {
	first, second := c.consumers[0], c.consumers[1]
	mine, theirs := c.offload(t, first), c.offload(t, second)
	require.NoError(t, selection.Set(t.Context(), c.broker.Client, first.Name, "provider2", false))
	t.Cleanup(func() {
		require.NoError(t, selection.Set(context.Background(), c.broker.Client, first.Name, "provider2", true))
	})
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		var policy brokeringv1alpha1.PlacementPolicy
		if err := c.broker.Client.Get(ctx, client.ObjectKey{Name: selection.PolicyName(first.Name)}, &policy); err != nil {
			return err
		}
		return c.policyIs(ctx, policy.Name, "True")
	})
	for i := range 6 {
		c.pod(t, first, mine, fmt.Sprintf("any-%d", i), "true")
	}
	c.pod(t, first, mine, "stubborn", "provider.id == 'provider2'")
	c.pod(t, second, theirs, "theirs", "provider.id == 'provider2'")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, second, theirs, 1) })
	for i := range 6 {
		name := fmt.Sprintf("any-%d", i)
		eventually(t, patient, func(ctx context.Context) error {
			at, err := c.placeOf(ctx, first, mine, name)
			if err == nil {
				assert.NotEqual(t, "provider2", at.provider.Name)
			}
			return err
		})
	}
	c.explained(t, first.RemoteNamespace(mine), "stubborn", "NoProviderFits", "0/3 provider clusters fit", "1 not selected by its consumer")

	require.NoError(t, selection.Set(t.Context(), c.broker.Client, first.Name, "provider2", true))
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, first, mine, 7) })
}

// strangers ask the remote IPAM for what is not theirs.
func (c *chain) strangers(t *testing.T) {
	owner, stranger := c.consumers[1], c.consumers[0]
	ns := c.offload(t, owner)
	c.pod(t, owner, ns, "mine", "true")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, owner, ns, 1) })
	var pod corev1.Pod
	require.NoError(t, c.broker.Client.Get(t.Context(), client.ObjectKey{Namespace: owner.RemoteNamespace(ns), Name: "mine"}, &pod))
	want, err := external(t.Context(), c.broker, pod.Namespace, pod.Status.PodIP)
	require.NoError(t, err)

	ask := func(consumer *sandbox.Cluster, as string) (string, error) {
		leader, err := c.BrokerLeader(t.Context())
		require.NoError(t, err)
		address, err := c.Address(leader, "ipam")
		require.NoError(t, err)
		proof, err := ipam.ClientTLS(identity(t, consumer), "", "")
		require.NoError(t, err)
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(proof)))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		answer, err := wire.NewIpamClient(conn).MapEndpointIP(ctx, &wire.MapRequest{ClusterID: as, Ip: pod.Status.PodIP})
		return answer.GetIp(), err
	}
	got, err := ask(owner, owner.Name)
	require.NoError(t, err)
	require.Equal(t, want.String(), got)
	_, err = ask(stranger, owner.Name)
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	_, err = ask(stranger, stranger.Name)
	require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
}

// offers: what the providers granted is the most that consumers get, and more when they grant more.
func (c *chain) offers(t *testing.T) {
	consumer := c.consumers[1]
	granted := resource.MustParse("48")
	some := c.ask(t, consumer, "some", map[corev1.ResourceName]string{corev1.ResourceCPU: "10", corev1.ResourceMemory: "10Gi", corev1.ResourcePods: "10"})
	eventually(t, 20*time.Second, func(ctx context.Context) error { return c.offered(ctx, some, "10") })

	// The rest is less than that.
	greedy := c.ask(t, consumer, "greedy", map[corev1.ResourceName]string{corev1.ResourceCPU: "39", corev1.ResourceMemory: "1Gi", corev1.ResourcePods: "10"})
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		if err := c.broker.Client.Get(ctx, client.ObjectKeyFromObject(greedy), greedy); err != nil {
			return err
		}
		condition := resourcesCondition(greedy)
		if condition == nil || condition.Status != authv1beta1.ResourceSliceConditionDenied ||
			!strings.Contains(condition.Message, "cpu: 39 asked, 38 left of "+granted.String()) {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
	require.NoError(t, consumer.Client.Delete(t.Context(), c.atConsumer(t, consumer, "greedy")))

	// One that leaves it to the broker gets the rest, on its virtual node, and more when there is more.
	all := c.ask(t, consumer, "all", nil)
	eventually(t, 20*time.Second, func(ctx context.Context) error { return c.offered(ctx, all, "38") })
	eventually(t, patient, func(ctx context.Context) error { return nodeHas(ctx, consumer, "all", "38") })
	t.Cleanup(func() { c.grant(t, "provider2", "16") })
	c.grant(t, "provider2", "24")
	eventually(t, patient, func(ctx context.Context) error { return nodeHas(ctx, consumer, "all", "46") })
	var node corev1.Node
	require.NoError(t, consumer.Client.Get(t.Context(), client.ObjectKey{Name: "all"}, &node))
	assert.Equal(t, "3", node.Labels[brokeringv1alpha1.ProvidersLabel])
}

// ask makes a ResourceSlice of the broker's class, and returns what the broker's cluster has of it.
func (c *chain) ask(t *testing.T, consumer *sandbox.Cluster, name string, amounts map[corev1.ResourceName]string) *authv1beta1.ResourceSlice {
	t.Helper()
	tenant := "liqo-tenant-" + sandbox.Broker
	slice := forge.ResourceSlice(name, tenant)
	options := &forge.ResourceSliceOptions{Class: "broker", Resources: amounts}
	require.NoError(t, forge.MutateResourceSlice(slice, liqov1beta1.ClusterID(sandbox.Broker), options, true))
	require.NoError(t, consumer.Client.Create(t.Context(), slice))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(consumer.Client.Delete(context.Background(), slice)))
	})
	atBroker := &authv1beta1.ResourceSlice{}
	atBroker.Name, atBroker.Namespace = name, "liqo-tenant-"+consumer.Name
	return atBroker
}

func (c *chain) atConsumer(t *testing.T, consumer *sandbox.Cluster, name string) *authv1beta1.ResourceSlice {
	t.Helper()
	slice := &authv1beta1.ResourceSlice{}
	require.NoError(t, consumer.Client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-" + sandbox.Broker, Name: name}, slice))
	return slice
}

func resourcesCondition(slice *authv1beta1.ResourceSlice) *authv1beta1.ResourceSliceCondition {
	for i := range slice.Status.Conditions {
		if slice.Status.Conditions[i].Type == authv1beta1.ResourceSliceConditionTypeResources {
			return &slice.Status.Conditions[i]
		}
	}
	return nil
}

// offered answers nil when a slice is accepted with so many CPUs.
func (c *chain) offered(ctx context.Context, slice *authv1beta1.ResourceSlice, cpus string) error {
	if err := c.broker.Client.Get(ctx, client.ObjectKeyFromObject(slice), slice); err != nil {
		return err
	}
	condition := resourcesCondition(slice)
	if condition == nil || condition.Status != authv1beta1.ResourceSliceConditionAccepted || slice.Status.Resources.Cpu().String() != cpus {
		return fmt.Errorf("ResourceSlice %s has %v, condition %+v", slice.Name, slice.Status.Resources, condition)
	}
	return nil
}

// nodeHas answers nil when a node is there with so many CPUs.
func nodeHas(ctx context.Context, c *sandbox.Cluster, name, cpus string) error {
	var node corev1.Node
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return err
	}
	if node.Status.Allocatable.Cpu().String() != cpus {
		return fmt.Errorf("node %s has %v", name, node.Status.Allocatable)
	}
	return nil
}

// TestOpaqueAddresses has a consumer with Liqo's own virtual kubelet, and a broker that shows external addresses.
func TestOpaqueAddresses(t *testing.T) {
	b := startBroker(t, sandbox.Options{
		Name: "testopaque", Consumers: 1, Providers: 2, Networking: true, Image: sandbox.ImageStock,
		BrokerKubeletArgs: []string{"--opaque-addresses=true"},
	})
	c := &chain{brokered: b, consumers: []*sandbox.Cluster{b.consumer}, opaque: true}
	ns := c.offload(t, b.consumer)
	for i := range 4 {
		c.pod(t, b.consumer, ns, fmt.Sprintf("pod-%d", i), "true")
	}
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, b.consumer, ns, 4) })
	c.decide(t, "provider1", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	eventually(t, followTime, func(ctx context.Context) error {
		for i := range 4 {
			if at, err := c.placeOf(ctx, b.consumer, ns, fmt.Sprintf("pod-%d", i)); err != nil || at.provider.Name == "provider1" {
				return fmt.Errorf("pod-%d is still at provider1: %w", i, err)
			}
		}
		return c.rightlyShown(ctx, b.consumer, ns, 4)
	})
}
