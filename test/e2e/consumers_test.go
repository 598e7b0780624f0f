package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication/forge"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam/wire"
	"github.com/capacitorset/liqo-broker-vk/pkg/orchestrator"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// selections checks that a provider that one consumer has switched off gets no new pods of that consumer, but still
// gets the other consumer's.
func (c *chain) selections(t *testing.T) {
	first, second := c.consumers[0], c.consumers[1]
	mine, theirs := c.offload(t, first), c.offload(t, second)
	require.NoError(t, orchestrator.Set(t.Context(), c.broker.Client, first.Name, "provider2", false))
	t.Cleanup(func() {
		// Delete the policy: the first selection that the catalog writes must create it, which needs a separate right.
		policy := &brokeringv1alpha1.PlacementPolicy{}
		policy.Name = orchestrator.PolicyName(first.Name)
		require.NoError(t, client.IgnoreNotFound(c.broker.Client.Delete(context.Background(), policy)))
	})
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		var policy brokeringv1alpha1.PlacementPolicy
		if err := c.broker.Client.Get(ctx, client.ObjectKey{Name: orchestrator.PolicyName(first.Name)}, &policy); err != nil {
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
	c.explained(t, first.RemoteNamespace(mine), "stubborn", "NoProviderFits", "no provider cluster fits", "not selected by its consumer")

	require.NoError(t, orchestrator.Set(t.Context(), c.broker.Client, first.Name, "provider2", true))
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, first, mine, 7) })
}

// strangers asks the remote IPAM for addresses of other clusters.
func (c *chain) strangers(t *testing.T) {
	owner, stranger := c.consumers[1], c.consumers[0]
	ns := c.offload(t, owner)
	c.pod(t, owner, ns, "mine", "true")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, owner, ns, 1) })
	var pod corev1.Pod
	require.NoError(t, c.broker.Client.Get(t.Context(), client.ObjectKey{Namespace: owner.RemoteNamespace(ns), Name: "mine"}, &pod))
	want, err := external(t.Context(), c.broker, pod.Namespace, pod.Status.PodIP)
	require.NoError(t, err)

	replicas, err := c.Replicas(brokerComponent)
	require.NoError(t, err)
	require.Len(t, replicas, 2)
	for _, replica := range replicas {
		ask := func(consumer *sandbox.Cluster, as string) (string, error) {
			return c.askRemoteIPAM(t, replica, consumer, as, pod.Status.PodIP)
		}
		got, err := ask(owner, owner.Name)
		require.NoError(t, err)
		require.Equal(t, want.String(), got)
		_, err = ask(stranger, owner.Name)
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		_, err = ask(stranger, stranger.Name)
		require.Equal(t, codes.NotFound, status.Code(err), "%v", err)

		// It is no secret which addresses belong to this cluster's own pods.
		var networks ipamv1alpha1.NetworkList
		require.NoError(t, c.broker.Client.List(t.Context(), &networks,
			client.MatchingLabels{consts.NetworkTypeLabelKey: string(consts.NetworkTypePodCIDR)}))
		require.Len(t, networks.Items, 1)
		for ip, want := range map[string]bool{
			netip.MustParsePrefix(networks.Items[0].Status.CIDR.String()).Addr().Next().String(): true, "192.0.2.1": false,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), patient)
			answer, err := c.dialRemoteIPAM(t, replica, stranger).BelongsToPodCIDR(ctx, &wire.BelongsRequest{Ip: ip})
			cancel()
			require.NoError(t, err)
			require.Equal(t, want, answer.GetBelongs(), ip)
		}
	}
}

// askRemoteIPAM asks a replica where a pod's address leads, with the identity of a consumer and in the name of one.
func (c *chain) askRemoteIPAM(t *testing.T, replica string, consumer *sandbox.Cluster, as, ip string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	answer, err := c.dialRemoteIPAM(t, replica, consumer).MapEndpointIP(ctx, &wire.MapRequest{ClusterID: as, Ip: ip})
	return answer.GetIp(), err
}

// dialRemoteIPAM connects to a replica with the identity of a consumer.
func (c *chain) dialRemoteIPAM(t *testing.T, replica string, consumer *sandbox.Cluster) wire.IpamClient {
	t.Helper()
	address, err := c.Address(replica, "ipam")
	require.NoError(t, err)
	proof, err := ipam.ClientTLS(identity(t, consumer), "", "")
	require.NoError(t, err)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(proof)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return wire.NewClient(conn)
}

func podOf(t *testing.T, c *sandbox.Cluster, namespace, name string) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &pod))
	return &pod
}

// remoteIPAM makes the remote IPAM unreachable. Known addresses stay. A pod that needs a new address has an event
// meanwhile, and gets its address afterwards. Everything else continues.
func (c *chain) remoteIPAM(t *testing.T) {
	consumer := c.consumers[0]
	ns := c.offload(t, consumer)
	c.pod(t, consumer, ns, "known", "provider.id == 'provider3'") // The consumer has no network connection to provider3.
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 1) })
	known := podOf(t, consumer, ns, "known")

	c.CutRemoteIPAM(true)
	t.Cleanup(func() { c.CutRemoteIPAM(false) })
	c.pod(t, consumer, ns, "unknown", "provider.id == 'provider3'")
	c.pod(t, consumer, ns, "direct", "provider.id == 'provider1'")
	eventually(t, patient, func(ctx context.Context) error {
		return event(ctx, consumer, podOf(t, consumer, ns, "unknown"), "AddressUnknown")
	})
	eventually(t, patient, func(ctx context.Context) error {
		at, err := c.placeOf(ctx, consumer, ns, "direct")
		if err != nil {
			return err
		}
		want, err := c.address(ctx, consumer, ns, at)
		if got := podOf(t, consumer, ns, "direct").Status.PodIP; err == nil && got != want {
			err = fmt.Errorf("pod direct shows %q, want %q", got, want)
		}
		return err
	})
	require.Empty(t, podOf(t, consumer, ns, "unknown").Status.PodIP, "no address is better than a wrong one")
	require.Equal(t, known.Status.PodIP, podOf(t, consumer, ns, "known").Status.PodIP)

	c.CutRemoteIPAM(false)
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 3) })
	require.Equal(t, known.UID, podOf(t, consumer, ns, "known").UID)
}

// reuse checks addresses of deleted pods that pods of another consumer get. Each pod is shown at its own place, and the
// endpoints of the first consumer's Service are its own pods.
func (c *chain) reuse(t *testing.T) {
	first, second := c.consumers[0], c.consumers[1]
	mine := c.offload(t, first)
	svc := &corev1.Service{Spec: corev1.ServiceSpec{
		Selector: map[string]string{"service": "web"},
		Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(80)}},
	}}
	svc.Name, svc.Namespace = "web", mine
	require.NoError(t, first.Client.Create(t.Context(), svc))
	const several = 4
	c.pod(t, first, mine, "stays", "provider.id == 'provider3'")
	for i := range several {
		c.pod(t, first, mine, fmt.Sprintf("goes-%d", i), "provider.id == 'provider3'")
	}
	c.expectEndpoints(t, first, mine, svc.Name, several+1)
	freed := map[netip.Addr]bool{}
	for i := range several {
		at, err := c.placeOf(t.Context(), first, mine, fmt.Sprintf("goes-%d", i))
		require.NoError(t, err)
		freed[at.address] = true
		require.NoError(t, first.Client.Delete(t.Context(), podOf(t, first, mine, fmt.Sprintf("goes-%d", i))))
	}
	c.expectEndpoints(t, first, mine, svc.Name, 1)

	t.Run("by another consumer", func(t *testing.T) {
		theirs := c.offload(t, second)
		// Which free address a pod gets is random, and the earlier scenarios leave many free. KWOK often gives a pod
		// two addresses one after the other, and never reuses the first.
		reused := false
		n := 0
		for n < 24 && !reused {
			for range 8 {
				c.pod(t, second, theirs, fmt.Sprintf("heir-%d", n), "provider.id == 'provider3'")
				n++
			}
			eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, second, theirs, n) })
			for i := range n {
				at, err := c.placeOf(t.Context(), second, theirs, fmt.Sprintf("heir-%d", i))
				require.NoError(t, err)
				reused = reused || freed[at.address]
			}
		}
		if !reused {
			provider := c.providers[2]
			heir := podOf(t, provider, c.broker.RemoteNamespace(second.RemoteNamespace(theirs)), "heir-0")
			setAddress(t, provider, heir, slices.Collect(maps.Keys(freed))[0].String())
			eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, second, theirs, n) })
		}
		c.expectEndpoints(t, first, mine, svc.Name, 1)
		require.NoError(t, c.rightlyShown(t.Context(), first, mine, 1))
	})
}

// setAddress makes a provider's pod show another address.
func setAddress(t *testing.T, provider *sandbox.Cluster, pod *corev1.Pod, address string) {
	t.Helper()
	before := pod.DeepCopy()
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	require.NoError(t, provider.Client.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
}

// foreignAddress makes a provider report an address of the broker's cluster for its pod. The broker neither shows nor
// maps it.
func (c *chain) foreignAddress(t *testing.T) {
	const apiServer = "10.96.0.1"
	consumer, provider := c.consumers[0], c.providers[2]
	ns := c.offload(t, consumer)
	c.pod(t, consumer, ns, "pod", "provider.id == 'provider3'")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 1) })

	atBroker := consumer.RemoteNamespace(ns)
	remote := podOf(t, provider, c.broker.RemoteNamespace(atBroker), "pod")
	name := func(address string) { setAddress(t, provider, remote, address) }
	own := remote.Status.PodIP
	name(apiServer)
	eventually(t, patient, func(ctx context.Context) error {
		for _, pod := range []*corev1.Pod{podOf(t, c.broker, atBroker, "pod"), podOf(t, consumer, ns, "pod")} {
			if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP != "" || len(pod.Status.PodIPs) > 0 {
				return fmt.Errorf("pod %s/%s is %s and shows %q", pod.Namespace, pod.Name, pod.Status.Phase, pod.Status.PodIPs)
			}
		}
		return event(ctx, c.broker, podOf(t, c.broker, atBroker, "pod"), "AddressUnknown", apiServer)
	})
	var ips ipamv1alpha1.IPList
	require.NoError(t, c.broker.Client.List(t.Context(), &ips))
	for i := range ips.Items {
		require.NotEqual(t, apiServer, string(ips.Items[i].Spec.IP), "%s maps it", ips.Items[i].Name)
	}

	name(own)
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 1) })
}

// offers checks that consumers get at most the sum of the providers' grants, and more when the grants grow.
func (c *chain) offers(t *testing.T) {
	consumer := c.consumers[1]
	granted := resource.MustParse("48")
	some := c.ask(t, consumer, "some", map[corev1.ResourceName]string{
		corev1.ResourceCPU: "10", corev1.ResourceMemory: "10Gi", corev1.ResourcePods: "10",
	})
	eventually(t, 20*time.Second, func(ctx context.Context) error { return c.offered(ctx, some, "10") })

	// The remaining capacity is less than that.
	greedy := c.ask(t, consumer, "greedy",
		map[corev1.ResourceName]string{corev1.ResourceCPU: "39", corev1.ResourceMemory: "1Gi", corev1.ResourcePods: "10"})
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		if err := c.broker.Client.Get(ctx, client.ObjectKeyFromObject(greedy), greedy); err != nil {
			return err
		}
		condition := resourcesCondition(greedy)
		if condition == nil || condition.Status != authv1beta1.ResourceSliceConditionDenied ||
			!strings.Contains(condition.Message, "cpu: 39 requested, 38 left of "+granted.String()) {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
	require.NoError(t, consumer.Client.Delete(t.Context(), c.atConsumer(t, consumer, "greedy")))

	// The limit of a consumer includes its existing slices. Without the limit the same request is granted.
	limit := &brokeringv1alpha1.ConsumerCluster{ObjectMeta: metav1.ObjectMeta{Name: consumer.Name}}
	limit.Spec.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("12")}
	require.NoError(t, c.broker.Client.Create(t.Context(), limit))
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(c.broker.Client.Delete(context.Background(), limit))) })
	above := c.ask(t, consumer, "above",
		map[corev1.ResourceName]string{corev1.ResourceCPU: "4", corev1.ResourceMemory: "1Gi", corev1.ResourcePods: "10"})
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		if err := c.broker.Client.Get(ctx, client.ObjectKeyFromObject(above), above); err != nil {
			return err
		}
		condition := resourcesCondition(above)
		if condition == nil || condition.Message != "cpu: 4 requested, 2 left of the limit 12 of ConsumerCluster "+consumer.Name {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
	require.NoError(t, c.broker.Client.Delete(t.Context(), limit))
	eventually(t, 20*time.Second, func(ctx context.Context) error { return c.offered(ctx, above, "4") })
	require.NoError(t, consumer.Client.Delete(t.Context(), c.atConsumer(t, consumer, "above")))

	kept := c.keep(t, consumer, "3", "2")

	// A slice without amounts gets the remaining capacity, on its virtual node, and grows with it.
	all := c.ask(t, consumer, "all", nil)
	eventually(t, 20*time.Second, func(ctx context.Context) error { return c.offered(ctx, all, "36") })
	require.NoError(t, c.broker.Client.Delete(t.Context(), kept))
	eventually(t, patient, func(ctx context.Context) error { return c.offered(ctx, all, "38") })
	eventually(t, patient, func(ctx context.Context) error { return nodeHas(ctx, consumer, "all", "38") })
	t.Cleanup(func() { c.grant(t, "provider2", "16") })
	c.grant(t, "provider2", "24")
	eventually(t, patient, func(ctx context.Context) error { return nodeHas(ctx, consumer, "all", "46") })
	var node corev1.Node
	require.NoError(t, consumer.Client.Get(t.Context(), client.ObjectKey{Name: "all"}, &node))
	assert.Equal(t, "3", node.Labels[brokeringv1alpha1.ProvidersLabel])
}

// keep makes a consumer delete a slice while it keeps a ShadowPod that requests some of the slice's CPUs. The consumer
// created the ShadowPod with the credentials of the slice. keep returns the ShadowPod.
func (c *chain) keep(t *testing.T, consumer *sandbox.Cluster, granted, used string) *offloadingv1beta1.ShadowPod {
	t.Helper()
	slice := c.ask(t, consumer, "former", map[corev1.ResourceName]string{
		corev1.ResourceCPU: granted, corev1.ResourceMemory: "1Gi", corev1.ResourcePods: "10",
	})
	eventually(t, 20*time.Second, func(ctx context.Context) error { return c.offered(ctx, slice, granted) })
	kept := shadowPod(consumer, c.offload(t, consumer), "kept", requests(corev1.ResourceCPU, used))
	direct := c.userOf(t, consumer, slice)
	eventually(t, patient, func(ctx context.Context) error { return direct.Create(ctx, kept.DeepCopy()) }) // It has no quota at first.
	eventually(t, patient, func(ctx context.Context) error {
		return c.broker.Client.Get(ctx, client.ObjectKeyFromObject(kept), &corev1.Pod{})
	})
	require.NoError(t, consumer.Client.Delete(t.Context(), c.atConsumer(t, consumer, "former")))
	return kept
}

// userOf returns a client with the credentials of a slice, by which a consumer's virtual kubelet creates ShadowPods.
func (c *chain) userOf(t *testing.T, consumer *sandbox.Cluster, slice *authv1beta1.ResourceSlice) client.Client {
	t.Helper()
	id := &authv1beta1.Identity{}
	key := client.ObjectKey{Namespace: "liqo-tenant-" + sandbox.Broker, Name: forge.ResourceSliceIdentityName(slice)}
	eventually(t, patient, func(ctx context.Context) error {
		if err := consumer.Client.Get(ctx, key, id); err != nil {
			return err
		}
		if id.Status.KubeconfigSecretRef == nil {
			return errors.New("the consumer has no kubeconfig of its slice")
		}
		return nil
	})
	return clientOf(t, kubeconfigOf(t, consumer, id))
}

// ask creates a ResourceSlice of the broker's class, and returns its copy in the broker's cluster.
func (c *chain) ask(
	t *testing.T, consumer *sandbox.Cluster, name string, amounts map[corev1.ResourceName]string,
) *authv1beta1.ResourceSlice {
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

// offered returns nil if a slice is accepted with that many CPUs.
func (c *chain) offered(ctx context.Context, slice *authv1beta1.ResourceSlice, cpus string) error {
	if err := c.broker.Client.Get(ctx, client.ObjectKeyFromObject(slice), slice); err != nil {
		return err
	}
	condition := resourcesCondition(slice)
	if condition == nil || condition.Status != authv1beta1.ResourceSliceConditionAccepted || slice.Status.Resources.Cpu().String() != cpus {
		return fmt.Errorf("ResourceSlice %s has %v, condition %+v", slice.Name, slice.Status.Resources, condition)
	}
	if offered := []liqov1beta1.StorageType{{
		StorageClassName: liqoClass,
		Default:          true,
	}}; !slices.Equal(slice.Status.StorageClasses, offered) {
		return fmt.Errorf("ResourceSlice %s offers the storage classes %v", slice.Name, slice.Status.StorageClasses)
	}
	return nil
}

// nodeHas returns nil if a node exists and has that many CPUs.
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
