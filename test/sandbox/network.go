package sandbox

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	tenantns "github.com/liqotech/liqo/pkg/tenantNamespace"
)

// connectNetworks creates a Configuration for the other cluster in both clusters, waits until Liqo has remapped its
// ranges, and creates gateways, or reports the link up.
//
// Without real packets there are no gateways. Liqo's controllers consider a network established if a Connection reports
// it, and only gateways write Connections. So the sandbox writes it to switch the link.
func (s *Sandbox) connectNetworks(ctx context.Context, a, b *Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	for _, pair := range [][2]*Cluster{{a, b}, {b, a}} {
		if err := pair[0].configureNetwork(ctx, pair[1].Name); err != nil {
			return fmt.Errorf("network of %s to %s: %w", pair[0].Name, pair[1].Name, err)
		}
	}
	if s.opts.Packets {
		return connectGateways(ctx, a, b)
	}
	return setLink(ctx, a, b, true)
}

// Connect connects the networks of two clusters that share no resources, such as two providers.
func (s *Sandbox) Connect(ctx context.Context, a, b string) error {
	if !s.opts.Networking {
		return errors.New("this sandbox has no networks: start it with --networking")
	}
	ca, cb, err := s.pair(a, b)
	if err != nil {
		return err
	}
	return s.connect(ctx, ca, cb)
}

// connect connects the networks of two clusters that share no resources, as `liqoctl network connect` does.
func (s *Sandbox) connect(ctx context.Context, a, b *Cluster) error {
	for _, pair := range [][2]*Cluster{{a, b}, {b, a}} {
		tenants := tenantns.NewManager(pair[0].Kube, newScheme())
		if _, err := tenants.CreateNamespace(ctx, liqov1beta1.ClusterID(pair[1].Name)); err != nil {
			return fmt.Errorf("network of %s to %s: %w", pair[0].Name, pair[1].Name, err)
		}
	}
	if err := s.connectNetworks(ctx, a, b); err != nil {
		return err
	}
	s.say("%s ↔ %s: networks connected", a.Name, b.Name)
	return nil
}

func (c *Cluster) configureNetwork(ctx context.Context, remote string) error {
	conf := &networkingv1beta1.Configuration{
		ObjectMeta: metav1.ObjectMeta{
			Name: remote, Namespace: tenantNamespace(remote),
			Labels: map[string]string{consts.RemoteClusterID: remote},
		},
		Spec: networkingv1beta1.ConfigurationSpec{Remote: networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterConfigCIDR{
			Pod: []networkingv1beta1.CIDR{podCIDR}, External: []networkingv1beta1.CIDR{externalCIDR},
		}}},
	}
	if err := c.Client.Create(ctx, conf); err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(conf), conf); err != nil {
			return err
		}
		if conf.Status.Remote == nil || len(conf.Status.Remote.CIDR.Pod) == 0 || len(conf.Status.Remote.CIDR.External) == 0 {
			return fmt.Errorf("configuration %s is not remapped yet", conf.Name)
		}
		return nil
	})
}

// setLink reports the link between two clusters up or down, on both sides.
func setLink(ctx context.Context, a, b *Cluster, up bool) error {
	for _, pair := range [][2]*Cluster{{a, b}, {b, a}} {
		if err := pair[0].reportConnection(ctx, pair[1].Name, up); err != nil {
			return fmt.Errorf("connection of %s to %s: %w", pair[0].Name, pair[1].Name, err)
		}
	}
	return nil
}

func (c *Cluster) reportConnection(ctx context.Context, remote string, up bool) error {
	namespace := tenantNamespace(remote)
	conn := &networkingv1beta1.Connection{
		ObjectMeta: metav1.ObjectMeta{Name: remote, Namespace: namespace, Labels: map[string]string{consts.RemoteClusterID: remote}},
		Spec: networkingv1beta1.ConnectionSpec{
			Type: networkingv1beta1.ConnectionTypeServer,
			GatewayRef: corev1.ObjectReference{
				APIVersion: networkingv1beta1.GroupVersion.String(), Kind: networkingv1beta1.WgGatewayServerKind,
				Name: remote, Namespace: namespace,
			},
		},
	}
	if err := c.Client.Create(ctx, conn); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(conn), conn); err != nil {
		return err
	}
	conn.Status.Value = networkingv1beta1.ConnectionError
	if up {
		conn.Status.Value = networkingv1beta1.Connected
	}
	return c.Client.Status().Update(ctx, conn)
}
