package sandbox

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication/forge"
	authutils "github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication/utils"
	tenantns "github.com/liqotech/liqo/pkg/tenantNamespace"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
)

// peerTimeout bounds each wait for Liqo during a peering.
const peerTimeout = 90 * time.Second

// authenticate registers consumer at provider and gives it credentials: the steps of `liqoctl authenticate`
// (pkg/liqoctl/authenticate/handler.go), with Liqo's own functions.
func authenticate(ctx context.Context, consumer, provider *Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	consumerID, providerID := liqov1beta1.ClusterID(consumer.Name), liqov1beta1.ClusterID(provider.Name)
	scheme := newScheme()
	atConsumer, err := tenantns.NewManager(consumer.Kube, scheme).CreateNamespace(ctx, providerID)
	if err != nil {
		return err
	}
	atProvider, err := tenantns.NewManager(provider.Kube, scheme).CreateNamespace(ctx, consumerID)
	if err != nil {
		return err
	}

	if err := authutils.EnsureNonceSecret(ctx, provider.Client, consumerID, atProvider.Name); err != nil {
		return err
	}
	nonce, err := pollBytes(ctx, func(ctx context.Context) ([]byte, error) {
		return authutils.RetrieveNonce(ctx, provider.Client, consumerID, atProvider.Name)
	})
	if err != nil {
		return fmt.Errorf("nonce: %w", err)
	}
	text := string(nonce)
	if err := authutils.EnsureSignedNonceSecret(ctx, consumer.Client, providerID, atConsumer.Name, &text); err != nil {
		return err
	}
	signed, err := pollBytes(ctx, func(ctx context.Context) ([]byte, error) {
		return authutils.RetrieveSignedNonce(ctx, consumer.Client, providerID, atConsumer.Name)
	})
	if err != nil {
		return fmt.Errorf("signed nonce: %w", err)
	}

	proxy := ""
	tenant, err := authutils.GenerateTenant(ctx, consumer.Client, consumerID, liqochart.Namespace, atProvider.Name, signed, &proxy)
	if err != nil {
		return err
	}
	if err := provider.Client.Create(ctx, tenant); err != nil {
		return err
	}
	var identity *authv1beta1.Identity
	err = poll(ctx, func(ctx context.Context) error {
		var err error
		identity, err = authutils.GenerateIdentityControlPlane(ctx, provider.Client, consumerID, atConsumer.Name, providerID,
			&atProvider.Name)
		return err
	})
	if err != nil {
		return fmt.Errorf("tenant: %w", err)
	}
	if err := consumer.Client.Create(ctx, identity); err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		if err := consumer.Client.Get(ctx, client.ObjectKeyFromObject(identity), identity); err != nil {
			return err
		}
		if identity.Status.KubeconfigSecretRef == nil {
			return fmt.Errorf("identity %s has no kubeconfig yet", identity.Name)
		}
		return nil
	})
}

func pollBytes(ctx context.Context, get func(context.Context) ([]byte, error)) (value []byte, err error) {
	err = poll(ctx, func(ctx context.Context) error {
		var err error
		if value, err = get(ctx); err == nil && len(value) == 0 {
			err = fmt.Errorf("still empty")
		}
		return err
	})
	return value, err
}

// CreateSlice requests resources from provider under the given name, as `liqoctl create resourceslice` does, and waits
// until they are granted. Liqo then creates a VirtualNode of that name, with its own virtual kubelet and quota
// (WaitVirtualKubelet). One provider may grant several slices.
func (c *Cluster) CreateSlice(ctx context.Context, name, provider string, want Slice, extra map[corev1.ResourceName]string) error {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	if err := c.bindKubeletRoles(ctx, tenantNamespace(provider), name); err != nil {
		return err
	}
	slice := forge.ResourceSlice(name, tenantNamespace(provider))
	resources := map[corev1.ResourceName]string{
		corev1.ResourceCPU: want.CPU, corev1.ResourceMemory: want.Memory, corev1.ResourcePods: want.Pods,
	}
	for k, v := range extra {
		resources[k] = v
	}
	options := &forge.ResourceSliceOptions{Class: authv1beta1.ResourceSliceClassDefault, Resources: resources}
	if err := forge.MutateResourceSlice(slice, liqov1beta1.ClusterID(provider), options, true); err != nil {
		return err
	}
	if err := c.Client.Create(ctx, slice); err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(slice), slice); err != nil {
			return err
		}
		for _, want := range []authv1beta1.ResourceSliceConditionType{
			authv1beta1.ResourceSliceConditionTypeAuthentication, authv1beta1.ResourceSliceConditionTypeResources,
		} {
			if !sliceAccepted(slice, want) {
				return fmt.Errorf("ResourceSlice %s: %s not accepted yet", name, want)
			}
		}
		return nil
	})
}

func sliceAccepted(slice *authv1beta1.ResourceSlice, t authv1beta1.ResourceSliceConditionType) bool {
	for _, cond := range slice.Status.Conditions {
		if cond.Type == t {
			return cond.Status == authv1beta1.ResourceSliceConditionAccepted
		}
	}
	return false
}

// WaitNodeReady waits until the Node is Ready and has capacity for pods.
func (c *Cluster) WaitNodeReady(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	err := poll(ctx, func(ctx context.Context) error {
		var node corev1.Node
		if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		for _, cond := range node.Status.Conditions {
			if cond.Type == corev1.NodeReady {
				if cond.Status != corev1.ConditionTrue {
					return fmt.Errorf("node %s is not Ready: %s %s", name, cond.Reason, cond.Message)
				}
				if node.Spec.Unschedulable || node.Status.Allocatable.Cpu().IsZero() {
					return fmt.Errorf("node %s is unschedulable or has no allocatable CPU: %s", name, cond.Message)
				}
				return nil
			}
		}
		return fmt.Errorf("node %s reports no Ready condition", name)
	})
	if err != nil {
		component := "vk-" + name
		if name == c.sandbox.opts.BrokerNode {
			component = BrokerComponent
		}
		return fmt.Errorf("%s: %w\nlast lines of its virtual kubelet's log:\n%s", c.Name, err, c.tailLog(ctx, component))
	}
	return nil
}
