package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/configuration"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/event"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/exposition"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/namespacemap"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/storage"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/netconfig"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/brokernode"
)

// Reflection is Liqo's reflection towards one remote cluster, composed.
type Reflection struct {
	manager manager.Manager
	pods    *podReflector
	view    *brokernode.View
	// refusals counts the pods that the provider did not take.
	refusals *prometheus.CounterVec
}

// Compose is the seam: here, and nowhere else, the clients, the lenses and Liqo's reflectors are put together. It does
// what Liqo's podprovider.NewLiqoProvider does, which makes its own clients and thus leaves no room for a lens.
// Nothing starts before Start.
func Compose(cfg *Config, clients Clients, patch *offloadingv1beta1.OffloadingPatch,
	ways Ways, events record.EventBroadcaster,
) (*Reflection, error) {
	// The two package-level states that Liqo's reflection forces on us: the event recorders resolve Liqo's kinds in
	// client-go's scheme, and the forging logic reads who we are from variables.
	if err := offloadingv1beta1.AddToScheme(scheme.Scheme); err != nil {
		return nil, err
	}
	forge.Init(cfg.HomeCluster, cfg.ForeignCluster, cfg.Node.Name, cfg.Node.IP)

	if cfg.Lenses.Clients != nil {
		clients = cfg.Lenses.Clients(clients)
	}
	view := cfg.view()
	if view != nil {
		clients.Local = view.LocalPods(clients.Local)
		clients.RemoteMetrics = view.Metrics(clients.RemoteMetrics)
	}
	support, err := apiServerSupport(cfg.Reflection.EnableAPIServerSupport, clients.Local)
	if err != nil {
		return nil, err
	}
	pods := newPodReflector(clients, newMappings(cfg, clients), newAddresses(cfg, ways), &workload.PodReflectorConfig{
		APIServerSupport:          support,
		DisableIPReflection:       cfg.Reflection.DisableIPReflection,
		HomeAPIServerHost:         cfg.Reflection.HomeAPIServerHost,
		HomeAPIServerPort:         cfg.Reflection.HomeAPIServerPort,
		KubernetesServiceIPMapper: kubernetesServiceIP(clients.LocalLiqo, cfg.LiqoNamespace, ways.Networks.View),
		NetConfiguration:          identityConfiguration(),
	}, cfg.reflector(resources.Pod))
	refusals := newRefusalCounter()
	if view != nil {
		pods.broker = newBroker(cfg, clients, refusals)
	}

	return &Reflection{
		manager:  newManager(cfg, clients, patch, pods, support, ways.Networks, events),
		pods:     pods,
		view:     view,
		refusals: refusals,
	}, nil
}

// newManager registers the reflectors in the order of Liqo's NewLiqoProvider.
func newManager(cfg *Config, clients Clients, patch *offloadingv1beta1.OffloadingPatch,
	pods manager.Reflector, support forge.APIServerSupportType, network networks, events record.EventBroadcaster,
) manager.Manager {
	r := cfg.Reflection
	forging := forge.NewForgingOpts(mergeNotReflected(patch, r.LabelsNotReflected, r.AnnotationsNotReflected))

	m := manager.New(clients.Local, clients.Remote, clients.LocalLiqo, clients.RemoteLiqo,
		cfg.InformerResyncPeriod, events, &forging).
		With(pods).
		With(cfg.retrying(resources.Service, exposition.ServiceReflectorName,
			exposition.NewNamespacedServiceReflector(r.EnableLoadBalancer, r.RemoteRealLoadBalancerClassName))).
		With(cfg.retrying(resources.Ingress, exposition.IngressReflectorName,
			exposition.NewNamespacedIngressReflector(r.EnableIngress, r.RemoteRealIngressClassName))).
		With(cfg.retrying(resources.ConfigMap, configuration.ConfigMapReflectorName,
			configuration.NewNamespacedConfigMapReflector)).
		With(cfg.retrying(resources.Secret, configuration.SecretReflectorName, secrets(cfg, support))).
		With(serviceAccounts(cfg, support)).
		With(cfg.retrying(resources.PersistentVolumeClaim, storage.PersistentVolumeClaimReflectorName,
			storage.NewNamespacedPersistentVolumeClaimReflector(r.VirtualStorageClassName, r.RemoteRealStorageClassName,
				r.EnableStorage))).
		With(cfg.retrying(resources.Event, event.EventReflectorName, event.NewNamespacedEventReflector))
	if !r.DisableIPReflection {
		m = m.With(cfg.retrying(resources.EndpointSlice, exposition.EndpointSliceReflectorName, endpointSlices(cfg, network)))
	}
	return m.WithNamespaceHandler(
		namespacemap.NewHandler(clients.LocalLiqo, cfg.TenantNamespace, cfg.InformerResyncPeriod))
}

// serviceAccounts is Liqo's reflector of service account tokens.
func serviceAccounts(cfg *Config, support forge.APIServerSupportType) manager.Reflector {
	reflector := configuration.NewServiceAccountReflector(support == forge.APIServerSupportTokenAPI,
		cfg.reflector(resources.ServiceAccount))
	if view := cfg.view(); view != nil {
		return view.OnOwnNode(reflector)
	}
	return reflector
}

// secrets makes Liqo's Secret reflectors.
func secrets(cfg *Config, support forge.APIServerSupportType) generic.NamespacedReflectorFactoryFunc {
	namespaced := configuration.NewNamespacedSecretReflector(support == forge.APIServerSupportLegacy)
	if view := cfg.view(); view != nil {
		return view.Secrets(namespaced)
	}
	return namespaced
}

// endpointSlices makes Liqo's EndpointSlice reflectors.
func endpointSlices(cfg *Config, network networks) generic.NamespacedReflectorFactoryFunc {
	if view := cfg.view(); view != nil {
		return view.Endpoints(cfg.Reflection.LocalPodCIDRs, func() bool { return network.View().Module != netconfig.Disabled })
	}
	return exposition.NewNamespacedEndpointSliceReflector(cfg.Reflection.LocalPodCIDRs)
}

func (c *Config) reflector(resource resources.ResourceReflected) *offloadingv1beta1.ReflectorConfig {
	return ptr.To(c.Reflection.Reflectors[resource])
}

// Start starts the reflection and returns once the caches of the local pods and of the NamespaceMap are synchronised,
// when the namespaces of that map may still be about to be started; it goes on until ctx ends.
func (r *Reflection) Start(ctx context.Context) {
	r.manager.Start(ctx)
	r.pods.started.Store(true)
}

// Resync makes every reflector but the pods' look at all its objects again; to be called on becoming leader.
func (r *Reflection) Resync() error { return r.manager.Resync() }

// RefreshPods makes the reflection look at all pods again; to be called when addresses may translate differently.
func (r *Reflection) RefreshPods() { r.pods.refresh() }

// followNetwork returns what is to be called after every change of the networks, by one goroutine: all pods are looked at
// again, and everything when the networking module was switched on or off, since EndpointSlices go by it too.
func (r *Reflection) followNetwork(networks networks) func() {
	module := netconfig.Unknown
	return func() {
		r.RefreshPods()
		if now := networks.View().Module; now != module {
			module = now
			if err := r.Resync(); err != nil {
				klog.ErrorS(err, "Cannot look at everything again after a change of the network")
			}
		}
	}
}

// RefreshAddress has those pods looked at again whose remote pods have an address.
func (r *Reflection) RefreshAddress(ip string) {
	r.pods.refreshAddress(ip)
}

// Pods answers the kubelet API's questions; to be called after Start.
func (r *Reflection) Pods() workload.PodHandler {
	if r.view != nil {
		return r.view.OwnPods(r.pods, r.pods.localPods)
	}
	return r.pods
}

// identityConfiguration satisfies Liqo's pod reflector, which translates addresses by a Configuration that it is given
// once: podReflector has translated them already. It must not be nil, or Liqo would take the networking module to be
// off and never ask for the address of the kubernetes service.
func identityConfiguration() *networkingv1beta1.Configuration {
	return &networkingv1beta1.Configuration{Status: networkingv1beta1.ConfigurationStatus{
		Conditions: []metav1.Condition{{
			Type:   networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured,
			Status: metav1.ConditionTrue,
		}},
		// No CIDRs: every address stays as it is. Liqo does not check that this is there.
		Remote: &networkingv1beta1.ClusterConfig{},
	}}
}

// kubernetesServiceIP finds the address under which offloaded pods reach this cluster's API server: none without the
// networking module, as with Liqo when it has no Configuration.
func kubernetesServiceIP(liqo liqoclient.Interface, liqoNamespace string,
	network func() netconfig.View,
) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if network().Module != netconfig.Enabled {
			return "", nil
		}
		ip, err := liqo.IpamV1alpha1().IPs(liqoNamespace).Get(ctx, consts.IPTypeAPIServer, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if ip.Status.IP == "" {
			return "", errors.New("no IP mapping found for the remote cluster API server")
		}
		return string(ip.Status.IP), nil
	}
}

// apiServerSupport chooses as Liqo does: by whether the home cluster serves the TokenRequest API.
func apiServerSupport(enabled bool, local kubernetes.Interface) (forge.APIServerSupportType, error) {
	if !enabled {
		return forge.APIServerSupportDisabled, nil
	}
	core, err := local.Discovery().ServerResourcesForGroupVersion(corev1.SchemeGroupVersion.String())
	if err != nil {
		return "", fmt.Errorf("looking for the service account token API: %w", err)
	}
	for i := range core.APIResources {
		if core.APIResources[i].Name == "serviceaccounts/token" {
			return forge.APIServerSupportTokenAPI, nil
		}
	}
	return forge.APIServerSupportLegacy, nil
}

// mergeNotReflected adds to the VirtualNode's patch what the flags of Liqo v0.x say; the label that names a ShadowPod's
// creator: on a pod that came from a consumer it is the consumer, and the next cluster's webhook would overwrite it
// (trimShadowPod); and what a broker writes on its pods, which concerns this cluster only: the next one may have a
// broker too.
func mergeNotReflected(patch *offloadingv1beta1.OffloadingPatch, labels, annotations []string) *offloadingv1beta1.OffloadingPatch {
	merged := patch.DeepCopy()
	if merged == nil {
		merged = &offloadingv1beta1.OffloadingPatch{}
	}
	merged.LabelsNotReflected = append(append(merged.LabelsNotReflected, labels...),
		consts.CreatorLabelKey, v1alpha1.VirtualNodeLabel, v1alpha1.ProviderLabel)
	merged.AnnotationsNotReflected = append(append(merged.AnnotationsNotReflected, annotations...),
		v1alpha1.AddressAnnotation)
	merged.AnnotationsNotReflected = append(merged.AnnotationsNotReflected, v1alpha1.BrokerAnnotations()...)
	merged.AnnotationsNotReflected = append(merged.AnnotationsNotReflected, v1alpha1.RootAnnotations()...)
	return merged
}
