package termination

import (
	"context"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	authforge "github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication/forge"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Gone finds the pods that deleted VirtualNodes left at their providers.
type Gone struct {
	Log         logr.Logger
	Clock       clock.PassiveClock
	Client      client.Client
	Connections *remote.Connections
}

// RemoteNamespace returns the name of a namespace at a provider; "" if Liqo has removed it there, or never made it.
func (g *Gone) RemoteNamespace(ctx context.Context, id, local string) (string, error) {
	maps, err := peering.NamespaceMaps(ctx, g.Client, id)
	if err != nil {
		return "", err
	}
	return peering.RemoteNamespaces(maps)[local], nil
}

// Connect returns a connection to the provider of a VirtualNode that is gone, by which to ask about the pods that it
// left there: the connection of another VirtualNode, or a new one. A leader that began later has none. nil if there is
// none.
func (g *Gone) Connect(ctx context.Context, at scheduler.Place) *remote.Connection {
	if at.Provider == "" {
		return nil
	}
	if other := g.Connections.OfProvider(at.Provider); other != nil {
		return other
	}
	tenant, err := peering.TenantNamespace(ctx, g.Client, at.Provider)
	if err != nil || tenant == "" {
		return nil
	}
	// Liqo makes a VirtualNode with the name of its ResourceSlice, and a Secret for the identity of that
	// (virtualnodecreator-controller, identity-controller), which stays when only the VirtualNode is deleted.
	identity := authforge.ResourceSliceIdentityName(&authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: at.VirtualNode}})
	gone := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: at.VirtualNode},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			ClusterID:           liqov1beta1.ClusterID(at.Provider),
			KubeconfigSecretRef: &corev1.LocalObjectReference{Name: authforge.KubeconfigSecret(authforge.Identity(identity, tenant)).Name},
		},
	}
	if err := g.Connections.Refresh(ctx, gone, g.Clock.Now()); err != nil {
		g.Log.Info("Cannot ask a provider without a VirtualNode about the pods that leave it", "provider", at.Provider,
			"virtualNode", at.VirtualNode, "error", err.Error())
		return nil
	}
	return g.Connections.Get(at)
}
