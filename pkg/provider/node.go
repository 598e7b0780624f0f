package provider

import (
	"context"

	"k8s.io/client-go/kubernetes"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	fcutils "github.com/liqotech/liqo/pkg/utils/foreigncluster"
	nodeprovider "github.com/liqotech/liqo/pkg/virtualKubelet/liqoNodeProvider"

	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

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
		Version:          process.ServerVersion(cfg.Log, local),
		ExtraLabels:      process.NodeLabels(cfg.Node.ExtraLabels),
		ExtraAnnotations: cfg.Node.ExtraAnnotations,

		InformerResyncPeriod: cfg.InformerResyncPeriod,
		PingDisabled:         cfg.Node.PingInterval == 0,
		CheckNetworkStatus:   cfg.Node.CheckNetwork && !networkingDisabled(p.foreignCluster),

		VirtualNode:    p.virtualNode,
		ForeignCluster: p.foreignCluster,
	})
	startInformers := source.StartProvider(ctx)
	return process.RunNode(ctx, process.NodeConfig{
		Log: cfg.Log, Name: cfg.Node.Name, Local: local, LeaseDuration: cfg.Node.LeaseDuration,
		PingInterval: cfg.Node.PingInterval, PingTimeout: cfg.Node.PingTimeout,
	}, source, func() {
		// Only now: the informers' handlers patch the node.
		close(startInformers)
		ready()
	})
}

// networkingDisabled reports whether the networking module of the peering is known to be disabled. Liqo's node provider
// detects this itself, except with Liqo v1.1: there it assumes that the module is enabled, and the Node would never
// become Ready.
func networkingDisabled(fc *liqov1beta1.ForeignCluster) bool {
	return fc != nil && fc.Status.ObservedGeneration == 0 && netconfig.Reconciled(fc) && !fcutils.IsNetworkingModuleEnabled(fc)
}
