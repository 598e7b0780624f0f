package provider

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	nodeprovider "github.com/liqotech/liqo/pkg/virtualKubelet/liqoNodeProvider"

	"github.com/capacitorset/liqo-broker-vk/pkg/interrupted"
)

// fallbackVersion is the kubelet version shown when the API server's cannot be read, as Liqo's own shows it.
const fallbackVersion = "v1.25.0"

// runNode registers the Node and keeps its status and lease until ctx ends. Liqo's node provider describes the node
// (from the VirtualNode and the ForeignCluster, which it watches); virtual-kubelet's node controller writes it.
func runNode(ctx context.Context, cfg *Config, p *peering, local kubernetes.Interface, ready func()) error {
	source := nodeprovider.NewLiqoNodeProvider(&nodeprovider.InitConfig{
		HomeConfig:      cfg.Home,
		RemoteConfig:    p.remote,
		HomeClusterID:   cfg.HomeCluster,
		RemoteClusterID: cfg.ForeignCluster,
		Namespace:       cfg.TenantNamespace,

		NodeName:         cfg.Node.Name,
		InternalIP:       cfg.Node.IP,
		DaemonPort:       cfg.Kubelet.Port,
		Version:          serverVersion(cfg.Log, local),
		ExtraLabels:      cfg.Node.ExtraLabels,
		ExtraAnnotations: cfg.Node.ExtraAnnotations,

		InformerResyncPeriod: cfg.InformerResyncPeriod,
		PingDisabled:         cfg.Node.PingInterval == 0,
		CheckNetworkStatus:   cfg.Node.CheckNetwork,

		VirtualNode:    p.virtualNode,
		ForeignCluster: p.foreignCluster,
	})
	startInformers := source.StartProvider(ctx)

	nodes := interrupted.Nodes(local.CoreV1().Nodes())
	leases := local.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	controller, err := node.NewNodeController(source, source.GetNode(), nodes,
		node.WithNodeEnableLeaseV1(leases, int32(cfg.Node.LeaseDuration.Seconds())),
		node.WithNodePingInterval(cfg.Node.PingInterval),
		node.WithNodePingTimeout(cfg.Node.PingTimeout),
		node.WithNodeStatusUpdateErrorHandler(func(ctx context.Context, cause error) error {
			return restoreNode(ctx, cfg.Log, nodes, source, cause)
		}),
	)
	if err != nil {
		return fmt.Errorf("node %q: %w", cfg.Node.Name, err)
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := controller.Run(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("node %q: %w", cfg.Node.Name, err)
		}
		return nil
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-controller.Ready():
			// Only now: the informers' handlers patch the node.
			close(startInformers)
			ready()
		}
		return nil
	})
	return group.Wait()
}

// restoreNode handles a status update that failed: a node that has vanished is created again (unless it is going away
// because its VirtualNode is), any other gets its status by a plain update.
func restoreNode(ctx context.Context, log logr.Logger, nodes corev1client.NodeInterface,
	source *nodeprovider.LiqoNodeProvider, cause error,
) error {
	if source.IsTerminating() {
		return nil
	}
	wanted := source.GetNode().DeepCopy()
	wanted.ResourceVersion = ""
	log.Info("Restoring the node after a failed status update", "node", wanted.Name, "because", cause.Error())

	existing, err := nodes.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case kerrors.IsNotFound(err):
		_, err = nodes.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	}
	existing.Status = wanted.Status
	_, err = nodes.UpdateStatus(ctx, existing, metav1.UpdateOptions{})
	return err
}

func serverVersion(log logr.Logger, local kubernetes.Interface) string {
	version, err := local.Discovery().ServerVersion()
	if err != nil {
		log.Error(err, "Cannot read the version of the API server", "showing", fallbackVersion)
		return fallbackVersion
	}
	return version.GitVersion
}
