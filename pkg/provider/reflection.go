package provider

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
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
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/brokernode/endpoints"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podip"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/claims"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/drift"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/retry"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// Reflection is Liqo's reflection towards one remote cluster, composed.
type Reflection struct {
	manager manager.Manager
	pods    *podReflector
	// broker is nil without a broker's node.
	broker *brokernode.Forwarder
}

// Compose connects Liqo's reflectors to the clusters. Liqo's podprovider.NewLiqoProvider does the same, but makes its
// own clients and accepts no others. Nothing starts before Start.
func Compose(cfg *Config, clients connect.Clients, patch *offloadingv1beta1.OffloadingPatch, sources podip.Sources,
	metrics *Metrics, events record.EventBroadcaster,
) (*Reflection, error) {
	// Liqo's reflection needs two package-level states: the event recorders resolve Liqo's kinds in client-go's scheme,
	// and the forging logic reads the identity of the virtual kubelet from variables.
	if err := offloadingv1beta1.AddToScheme(scheme.Scheme); err != nil {
		return nil, err
	}
	forge.Init(cfg.HomeCluster, cfg.ForeignCluster, cfg.Node.Name, cfg.Node.IP)

	var b *brokernode.Forwarder
	if cfg.BrokerNode != "" {
		b = newForwarder(cfg, clients.Local.CoreV1().Pods, metrics)
		clients.Local, clients.RemoteMetrics = b.View.LocalPods(clients.Local), b.View.Metrics(clients.RemoteMetrics)
	}
	support, err := apiServerSupport(cfg.Reflection.EnableAPIServerSupport, clients.Local)
	if err != nil {
		return nil, err
	}
	forging := forge.NewForgingOpts(mergeNotReflected(patch, cfg.Reflection.LabelsNotReflected, cfg.Reflection.AnnotationsNotReflected))
	m := manager.New(clients.Local, clients.Remote, clients.LocalLiqo, clients.RemoteLiqo, cfg.InformerResyncPeriod, events, &forging)
	liqo := transform.Destined(clients.LocalLiqo, cfg.ForeignCluster)
	pods := newPodReflector(cfg, clients, liqo, sources, b, support)
	m.With(pods)
	for _, reflector := range newReflectors(cfg, b, support, sources.Networks) {
		m.With(reflector)
	}
	m.WithNamespaceHandler(namespacemap.NewHandler(liqo, cfg.TenantNamespace, cfg.InformerResyncPeriod))
	return &Reflection{manager: m, pods: pods, broker: b}, nil
}

// newForwarder returns the Forwarder, which serves the pods of a broker's node; the virtual kubelet then has no node of
// its own.
func newForwarder(cfg *Config, pods func(namespace string) corev1client.PodInterface, metrics *Metrics) *brokernode.Forwarder {
	return &brokernode.Forwarder{
		View: brokernode.View{
			Node: cfg.BrokerNode, VirtualNode: cfg.VirtualNode, Provider: string(cfg.ForeignCluster),
			LiqoNodeName: cfg.Node.Name, ForwardTokens: cfg.ForwardTokens,
		},
		Tracer: cfg.Tracer, Pods: pods, Clock: clock.RealClock{}, Refused: metrics.refused, Log: cfg.Log,
	}
}

// newReflectors returns all reflectors except the pod reflector, in the order of Liqo's NewLiqoProvider, each with its
// wrappers. b is nil without a broker's node.
func newReflectors(cfg *Config, b *brokernode.Forwarder, support forge.APIServerSupportType, networks podip.Networks,
) []manager.Reflector {
	r := cfg.Reflection
	secrets := configuration.NewNamespacedSecretReflector(support == forge.APIServerSupportLegacy)
	serviceAccounts := configuration.NewServiceAccountReflector(
		support == forge.APIServerSupportTokenAPI, cfg.reflector(resources.ServiceAccount))
	endpointSlices := exposition.NewNamespacedEndpointSliceReflector(r.LocalPodCIDRs)
	volumeClaims := claims.Successive(storage.NewNamespacedPersistentVolumeClaimReflector(
		r.VirtualStorageClassName, r.RemoteRealStorageClassName, r.EnableStorage))
	if b != nil {
		volumeClaims = claims.Namespaced(string(cfg.ForeignCluster), r.RemoteRealStorageClassName)
		secrets = b.View.Secrets(secrets)
		serviceAccounts = b.View.OnOwnNode(serviceAccounts)
		endpointSlices = endpoints.Reflector(cfg.BrokerNode, r.LocalPodCIDRs, func() bool {
			return networks.View().Module != netconfig.Disabled
		})
	}

	all := []manager.Reflector{
		cfg.leading(resources.Service, exposition.ServiceReflectorName,
			exposition.NewNamespacedServiceReflector(r.EnableLoadBalancer, r.RemoteRealLoadBalancerClassName)),
		cfg.leading(resources.Ingress, exposition.IngressReflectorName,
			exposition.NewNamespacedIngressReflector(r.EnableIngress, r.RemoteRealIngressClassName)),
		cfg.leading(resources.ConfigMap, configuration.ConfigMapReflectorName,
			drift.ConfigMaps(configuration.NewNamespacedConfigMapReflector)),
		cfg.leading(resources.Secret, configuration.SecretReflectorName, drift.Secrets(secrets)),
		serviceAccounts,
		cfg.leading(resources.PersistentVolumeClaim, storage.PersistentVolumeClaimReflectorName, volumeClaims),
		cfg.leading(resources.Event, event.EventReflectorName, transform.Events(event.NewNamespacedEventReflector)),
	}
	if !r.DisableIPReflection {
		all = append(all, cfg.leading(resources.EndpointSlice, exposition.EndpointSliceReflectorName, endpointSlices))
	}
	return all
}

// leading returns Liqo's reflector that works only on the leader of the reflection, with its own retries. With no
// workers configured Liqo returns a reflector that does nothing.
func (c *Config) leading(resource resources.ResourceReflected, name string,
	namespaced generic.NamespacedReflectorFactoryFunc,
) manager.Reflector {
	cfg := c.reflector(resource)
	return generic.NewReflector(name, retry.New().Namespaced(namespaced), generic.WithoutFallback(),
		cfg.NumWorkers, cfg.Type, generic.ConcurrencyModeLeader)
}

func (c *Config) reflector(resource resources.ResourceReflected) *offloadingv1beta1.ReflectorConfig {
	return ptr.To(c.Reflection.Reflectors[resource])
}

// Start starts the reflection and returns once the caches of the local pods and of the NamespaceMap are synced.
// Namespaces of that map may still be starting then. The reflection runs until ctx ends.
func (r *Reflection) Start(ctx context.Context) {
	r.manager.Start(ctx)
	r.pods.started.Store(true)
}

// handler returns the handler of the kubelet API. It must be called after Start.
func (r *Reflection) handler() workload.PodHandler {
	if r.broker == nil {
		return r.pods
	}
	return r.broker.View.OwnPods(r.pods, r.pods.localPods)
}

// followNetwork returns the callback for every change of the networks; one goroutine calls it. It enqueues all pods,
// and all objects if the networking module was enabled or disabled, because EndpointSlices depend on the module too.
func (r *Reflection) followNetwork(networks podip.Networks) func() {
	module := netconfig.Unknown
	return func() {
		r.pods.addresses.Refresh()
		if now := networks.View().Module; now != module {
			module = now
			if err := r.manager.Resync(); err != nil {
				klog.ErrorS(err, "Cannot enqueue all objects after a network change")
			}
		}
	}
}

// refreshAddresses enqueues the pods of each address in the queue, until ctx ends.
func (r *Reflection) refreshAddresses(ctx context.Context, queue workqueue.TypedInterface[string]) error {
	defer context.AfterFunc(ctx, queue.ShutDown)()
	for {
		ip, shutdown := queue.Get()
		if shutdown {
			return nil
		}
		r.pods.addresses.RefreshAddress(ip)
		queue.Done(ip)
	}
}

// identityConfiguration satisfies Liqo's pod reflector, which translates addresses with a Configuration that it gets
// once: podReflector has already translated them. It must not be nil: Liqo would assume that the networking module is
// disabled, and never look up the address of the kubernetes service.
func identityConfiguration() *networkingv1beta1.Configuration {
	return &networkingv1beta1.Configuration{Status: networkingv1beta1.ConfigurationStatus{
		Conditions: []metav1.Condition{{
			Type:   networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured,
			Status: metav1.ConditionTrue,
		}},
		// No CIDRs: every address stays as it is. Liqo does not check the field for nil.
		Remote: &networkingv1beta1.ClusterConfig{},
	}}
}

// kubernetesServiceIP finds the address with which offloaded pods reach this cluster's API server. Without the
// networking module there is none, as in Liqo without a Configuration.
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

// mergeNotReflected adds three groups to the VirtualNode's patch. First, the values of Liqo v0.x's flags. Second, the
// label that names a ShadowPod's creator: on a pod that a consumer has forwarded, it is the consumer, and the next
// cluster's webhook would overwrite it (transform.Trimmed). Third, the labels and annotations that a broker writes on
// its pods: they concern this cluster only, and the next cluster may have a broker too.
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
	merged.AnnotationsNotReflected = append(merged.AnnotationsNotReflected, v1alpha1.PodUIDAnnotation, v1alpha1.ConstraintsAnnotation)
	return merged
}
