package kubelet

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	virtualkubeletv1alpha1 "github.com/liqotech/liqo/apis/virtualkubelet/v1alpha1"
	"github.com/liqotech/liqo/pkg/consts"
	liqoipam "github.com/liqotech/liqo/pkg/liqonet/ipam"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/configuration"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/event"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/exposition"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/namespacemap"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/storage"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
)

// ipamTimeout bounds a request to this cluster's IPAM. Liqo's own requests end only with the process.
const ipamTimeout = 10 * time.Second

// reflection is Liqo's reflection towards one remote cluster, composed.
type reflection struct {
	manager manager.Manager
	pods    *podReflector
}

// compose connects Liqo's reflectors to the clusters. Liqo's podprovider.NewLiqoProvider does the same, but makes its
// own clients and accepts no others. Nothing starts before manager.Start. remote is nil without a remote IPAM.
func compose(cfg *Config, clients connect.Clients, local liqoipam.IpamClient, network *network, remote remoteIPAM,
	events record.EventBroadcaster,
) (*reflection, error) {
	if err := virtualkubeletv1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return nil, err
	}
	forge.Init(cfg.HomeCluster, cfg.ForeignCluster, cfg.Node.Name, cfg.Node.IP)
	support, err := apiServerSupport(cfg.Reflection.EnableAPIServerSupport, clients.Local)
	if err != nil {
		return nil, err
	}

	r := cfg.Reflection
	podIPs := local
	if remote != nil && !r.DisableIPReflection {
		podIPs = &translator{IpamClient: local, ranges: network.ranges, remote: remote}
	}
	pods := newPodReflector(cfg, clients, podIPs, remote, support)
	m := manager.New(clients.Local, clients.Remote, clients.LocalLiqo, clients.RemoteLiqo, cfg.InformerResyncPeriod, events,
		r.LabelsNotReflected, r.AnnotationsNotReflected).
		With(pods).
		With(exposition.NewServiceReflector(r.Reflectors[generic.Service])).
		With(exposition.NewIngressReflector(r.Reflectors[generic.Ingress])).
		With(configuration.NewConfigMapReflector(r.Reflectors[generic.ConfigMap])).
		With(configuration.NewSecretReflector(support == forge.APIServerSupportLegacy, r.Reflectors[generic.Secret])).
		With(configuration.NewServiceAccountReflector(support == forge.APIServerSupportTokenAPI, r.Reflectors[generic.ServiceAccount])).
		With(storage.NewPersistentVolumeClaimReflector(r.VirtualStorageClassName, r.RemoteRealStorageClassName, r.EnableStorage,
			r.Reflectors[generic.PersistentVolumeClaim])).
		With(event.NewEventReflector(r.Reflectors[generic.Event])).
		WithNamespaceHandler(namespacemap.NewHandler(offloading{clients.LocalLiqo}, cfg.TenantNamespace, cfg.InformerResyncPeriod))
	if !r.DisableIPReflection {
		m.With(exposition.NewEndpointSliceReflector(local, r.Reflectors[generic.EndpointSlice]))
	}
	return &reflection{manager: m, pods: pods}, nil
}

// newPodReflector returns Liqo's pod reflector, which tracks the addresses of pods if there is a remote IPAM.
func newPodReflector(cfg *Config, clients connect.Clients, ipam liqoipam.IpamClient, remote remoteIPAM,
	support forge.APIServerSupportType,
) *podReflector {
	workers := cfg.Reflection.Reflectors[generic.Pod]
	pods := &podReflector{
		PodReflector: workload.NewPodReflector(clients.RemoteConfig, clients.RemoteMetrics, ipam, &workload.PodReflectorConfig{
			APIServerSupport: support, DisableIPReflection: cfg.Reflection.DisableIPReflection,
			HomeAPIServerHost: cfg.Reflection.HomeAPIServerHost, HomeAPIServerPort: cfg.Reflection.HomeAPIServerPort,
		}, workers),
		namespaces: map[string]*namespace{}, shown: map[string]int{},
	}
	if remote != nil {
		pods.forget = remote.Forget
		pods.Reflector = generic.NewReflector(workload.PodReflectorName, pods.newNamespaced, pods.NewFallback,
			workers.NumWorkers, consts.CustomLiqo, generic.ConcurrencyModeAll)
	}
	return pods
}

// apiServerSupport decides as Liqo does: by whether the home cluster serves the TokenRequest API.
func apiServerSupport(enabled bool, local kubernetes.Interface) (forge.APIServerSupportType, error) {
	if !enabled {
		return forge.APIServerSupportDisabled, nil
	}
	core, err := local.Discovery().ServerResourcesForGroupVersion(corev1.SchemeGroupVersion.String())
	if err != nil {
		return "", fmt.Errorf("discovering the TokenRequest API: %w", err)
	}
	for i := range core.APIResources {
		if core.APIResources[i].Name == "serviceaccounts/token" {
			return forge.APIServerSupportTokenAPI, nil
		}
	}
	return forge.APIServerSupportLegacy, nil
}

// dialIPAM returns the client of this cluster's network manager; nil if there is none or it must not be asked. Liqo's
// own waits for the network manager and exits when it does not answer within 10 s; this one connects with the first
// request.
func dialIPAM(cfg *Config) (client liqoipam.IpamClient, closeIt func(), err error) {
	if cfg.IPAMServer == "" || cfg.Reflection.DisableIPReflection {
		return nil, func() {}, nil
	}
	conn, err := grpc.NewClient(cfg.IPAMServer, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(bounded), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, nil, fmt.Errorf("--ipam-server=%s: %w", cfg.IPAMServer, err)
	}
	return liqoipam.NewIpamClient(conn), func() { _ = conn.Close() }, nil
}

func bounded(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	ctx, cancel := context.WithTimeout(ctx, ipamTimeout)
	defer cancel()
	return invoke(ctx, method, request, reply, conn, opts...)
}
