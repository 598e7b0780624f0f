package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/cmd/virtual-kubelet/root"
	cidrutils "github.com/liqotech/liqo/pkg/utils/cidr"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/logging"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/election"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

// Run is the root command: the virtual kubelet.
func Run(ctx context.Context, o *Options, set *pflag.FlagSet, logs io.Writer, built build.Info) error {
	if err := o.validate(); err != nil {
		return err
	}
	log, err := logging.SetUp(logs, o.LogLevel, o.LogFormat, set)
	if err != nil {
		return err
	}
	cfg := o.providerConfig()
	cfg.Log, cfg.UnknownFlags = log, process.Unknown(set)
	log.Info("Starting", "version", built.Version, "commit", built.Commit, "liqo", built.Liqo,
		"node", cfg.Node.Name, "remoteCluster", cfg.ForeignCluster, "brokerNode", cfg.BrokerNode)
	process.LogUnknown(log, cfg.UnknownFlags)

	if cfg.Home, err = built.RESTConfig(o.stock.HomeKubeconfig, "virtual-kubelet"); err != nil {
		return fmt.Errorf("connecting to the home cluster (set --home-kubeconfig, or run in a pod): %w", err)
	}

	group, ctx := errgroup.WithContext(ctx)
	if o.stock.EnableProfiling {
		group.Go(func() error { return process.ServeProfiles(ctx, o.profilingAddress) })
	}
	group.Go(func() error {
		return o.tracing.Traced(ctx, log, "liqo-virtual-kubelet", built.Version, cfg.PodName, func(tracer trace.Tracer) error {
			cfg.Tracer = tracer
			return provider.Run(ctx, cfg)
		})
	})
	err = group.Wait()
	if err == nil {
		log.Info("Stopped")
	}
	return err
}

// providerConfig returns the virtual kubelet's Config without Log, Home and Tracer.
func (o *Options) providerConfig() provider.Config {
	s := o.stock
	cfg := provider.Config{
		HomeCluster:          s.HomeCluster.GetClusterID(),
		ForeignCluster:       s.ForeignCluster.GetClusterID(),
		KubeconfigSecretName: s.RemoteKubeconfigSecretName,
		PodName:              s.PodName,
		VirtualNode:          o.virtualNode,
		VirtualNodeNamespace: o.podNamespace,
		TenantNamespace:      s.TenantNamespace,
		LiqoNamespace:        s.LiqoNamespace,
		BrokerNode:           o.brokerNode,
		ForwardTokens:        o.forwardTokens,
		Node: provider.NodeConfig{
			Name:             s.NodeName,
			IP:               s.NodeIP,
			Create:           s.CreateNode,
			LeaseDuration:    s.NodeLeaseDuration,
			PingInterval:     s.NodePingInterval,
			PingTimeout:      s.NodePingTimeout,
			CheckNetwork:     s.NodeCheckNetwork,
			ExtraLabels:      s.NodeExtraLabels.StringMap,
			ExtraAnnotations: s.NodeExtraAnnotations.StringMap,
		},
		Reflection: o.reflectionConfig(),
		Addresses:  o.addressConfig(),
		Lease: provider.LeaseConfig{
			ReflectionEnabled: s.VirtualKubeletLeaseEnabled,
			Times: election.Times{
				Duration: s.VirtualKubeletLeaseLeaseDuration, RenewDeadline: s.VirtualKubeletLeaseRenewDeadline,
				RetryPeriod: s.VirtualKubeletLeaseRetryPeriod,
			},
		},
		Kubelet: provider.KubeletConfig{
			Port:              s.ListenPort,
			CertificateType:   kubeletapi.CertificateType(s.CertificateType.Value),
			CertDir:           o.CertDir,
			ClientCAFile:      o.ClientCAFile,
			AuthorizationMode: kubeletapi.AuthorizationMode(o.AuthorizationMode),
		},
		InformerResyncPeriod: s.InformerResyncPeriod,
		StartupTimeout:       o.startupTimeout,
		RequestTimeout:       o.requestTimeout,
		HealthAddress:        flags.Served(o.HealthProbeAddress),
	}
	if s.EnableMetrics {
		cfg.MetricsAddress = s.MetricsAddress
	}
	return cfg
}

// table returns the translation given by the flags; nil if they give none.
func (o *Options) table() (*netconfig.Table, error) {
	declared := networkingv1beta1.ClusterConfigCIDR{
		Pod: cidrutils.FromStrings(o.remotePodCIDRs), External: cidrutils.FromStrings(o.remoteExternalCIDRs),
	}
	seen := networkingv1beta1.ClusterConfigCIDR{
		Pod: cidrutils.FromStrings(o.remappedPodCIDRs), External: cidrutils.FromStrings(o.remappedExternalCIDRs),
	}
	if len(declared.Pod)+len(declared.External)+len(seen.Pod)+len(seen.External) == 0 {
		return nil, nil // No flag is set.
	}
	table, err := netconfig.TableOf(declared, seen)
	return &table, err
}

func (o *Options) addressConfig() provider.AddressConfig {
	cfg := provider.AddressConfig{Direct: o.directTraffic, Announce: o.announceRoot, Opaque: o.opaqueAddresses}
	if table, err := o.table(); err == nil { // validate checks it.
		cfg.Table = table
	}
	for _, cidr := range o.remoteCIDRs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil { // validate checks it.
			cfg.Allowed = append(cfg.Allowed, prefix)
		}
	}
	if server, err := ipam.ParseRemote(o.remoteIPAM); err == nil { // validate checks it.
		cfg.RemoteIPAM = &provider.RemoteIPAMConfig{
			Server: server, Insecure: o.remoteIPAMInsecure, CAFile: o.remoteIPAMCA, ServerName: o.remoteIPAMServerName,
		}
	}
	return cfg
}

func (o *Options) reflectionConfig() provider.ReflectionConfig {
	s := o.stock
	return provider.ReflectionConfig{
		Reflectors:                      o.reflectors(),
		DisableIPReflection:             s.DisableIPReflection,
		LocalPodCIDRs:                   s.LocalPodCIDRs,
		EnableAPIServerSupport:          s.EnableAPIServerSupport,
		HomeAPIServerHost:               s.HomeAPIServerHost,
		HomeAPIServerPort:               s.HomeAPIServerPort,
		EnableStorage:                   s.EnableStorage,
		VirtualStorageClassName:         s.VirtualStorageClassName,
		RemoteRealStorageClassName:      s.RemoteRealStorageClassName,
		EnableIngress:                   s.EnableIngress,
		RemoteRealIngressClassName:      s.RemoteRealIngressClassName,
		EnableLoadBalancer:              s.EnableLoadBalancer,
		RemoteRealLoadBalancerClassName: s.RemoteRealLoadBalancerClassName,
		LabelsNotReflected:              o.notReflected.labels,
		AnnotationsNotReflected:         o.notReflected.annotations,
	}
}

// reflectors combines workers and types as Liqo does (root.getReflectorsConfigs): endpointslices have the type of
// services, and resources without a flag have Liqo's fixed type.
func (o *Options) reflectors() map[resources.ResourceReflected]offloadingv1beta1.ReflectorConfig {
	configs := make(map[resources.ResourceReflected]offloadingv1beta1.ReflectorConfig, len(resources.Reflectors))
	for _, resource := range resources.Reflectors {
		typed := resource
		if resource == resources.EndpointSlice {
			typed = resources.Service
		}
		reflectionType := root.DefaultReflectorsTypes[typed]
		if chosen, ok := o.stock.ReflectorsType[string(typed)]; ok {
			reflectionType = offloadingv1beta1.ReflectionType(*chosen)
		}
		configs[resource] = offloadingv1beta1.ReflectorConfig{
			NumWorkers: *o.stock.ReflectorsWorkers[string(resource)],
			Type:       reflectionType,
		}
	}
	return configs
}
