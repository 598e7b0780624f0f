package sandbox

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/networking/forge"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/networking/getters"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
)

// connectGateways creates a gateway client in a and a gateway server in b, as `liqoctl network connect` does
// (pkg/liqoctl/network/handler.go), with Liqo's own functions, and waits until they report a connection.
func connectGateways(ctx context.Context, a, b *Cluster) error {
	server, err := forge.GatewayServer(tenantNamespace(a.Name), nil, &forge.GwServerOptions{
		KubeClient: b.Kube, RemoteClusterID: liqov1beta1.ClusterID(a.Name),
		GatewayType: forge.DefaultGwServerType, TemplateName: forge.DefaultGwServerTemplateName, TemplateNamespace: liqochart.Namespace,
		ServiceType: corev1.ServiceTypeNodePort, MTU: forge.DefaultMTU, Port: forge.DefaultGwServerPort,
	})
	if err != nil {
		return err
	}
	if err := b.Client.Create(ctx, server); err != nil {
		return err
	}
	err = b.wait(ctx, server, func() bool {
		// No address while the node is not Ready.
		at := server.Status.Endpoint
		return at != nil && len(at.Addresses) > 0 && at.Addresses[0] != "" && server.Status.SecretRef != nil
	})
	if err != nil {
		return err
	}
	endpoint := server.Status.Endpoint
	gateway, err := forge.GatewayClient(tenantNamespace(b.Name), nil, &forge.GwClientOptions{
		KubeClient: a.Kube, RemoteClusterID: liqov1beta1.ClusterID(b.Name),
		GatewayType: forge.DefaultGwClientType, TemplateName: forge.DefaultGwClientTemplateName, TemplateNamespace: liqochart.Namespace,
		MTU: forge.DefaultMTU, Addresses: endpoint.Addresses, Port: endpoint.Port, Protocol: string(*endpoint.Protocol),
	})
	if err != nil {
		return err
	}
	if err := a.Client.Create(ctx, gateway); err != nil {
		return err
	}
	if err := a.wait(ctx, gateway, func() bool { return gateway.Status.SecretRef != nil }); err != nil {
		return err
	}
	if err := shareKey(ctx, b, server.Status.SecretRef, a, gateway); err != nil {
		return err
	}
	if err := shareKey(ctx, a, gateway.Status.SecretRef, b, server); err != nil {
		return err
	}
	for _, pair := range [][2]*Cluster{{a, b}, {b, a}} {
		if err := pair[0].waitConnected(ctx, pair[1].Name); err != nil {
			return err
		}
	}
	return nil
}

// wait gets an object until done returns true.
func (c *Cluster) wait(ctx context.Context, object client.Object, done func() bool) error {
	return poll(ctx, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if !done() {
			return fmt.Errorf("%T %s of %s is not ready", object, object.GetName(), c.Name)
		}
		return nil
	})
}

// shareKey copies the public key of the gateway of from to cluster to, owned by the gateway there.
func shareKey(ctx context.Context, from *Cluster, secret *corev1.ObjectReference, to *Cluster, owner client.Object) error {
	key, err := getters.ExtractKeyFromSecretRef(ctx, from.Client, secret)
	if err != nil {
		return fmt.Errorf("key of the gateway of %s: %w", from.Name, err)
	}
	public, err := forge.PublicKey(owner.GetNamespace(), nil, liqov1beta1.ClusterID(from.Name), key)
	if err != nil {
		return err
	}
	if err := controllerutil.SetOwnerReference(owner, public, to.Client.Scheme()); err != nil {
		return err
	}
	return to.Client.Create(ctx, public)
}

func (c *Cluster) waitConnected(ctx context.Context, remote string) error {
	return poll(ctx, func(ctx context.Context) error {
		var list networkingv1beta1.ConnectionList
		if err := c.Client.List(ctx, &list, client.InNamespace(tenantNamespace(remote))); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Status.Value == networkingv1beta1.Connected {
				return nil
			}
		}
		return fmt.Errorf("%s has no connection to %s", c.Name, remote)
	})
}
