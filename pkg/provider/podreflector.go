package provider

import (
	"context"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/absence"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/brokernode"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/connect"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podip"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podlife"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podspec"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podstatus"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/drift"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/retry"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// podReflector is Liqo's pod reflector, which wraps the namespaced reflectors in its own.
type podReflector struct {
	*workload.PodReflector
	addresses *podip.Addresses
	// forwarder is nil without a broker's node.
	forwarder *brokernode.Forwarder

	localPods corev1listers.PodLister
	// started is true once Liqo's manager has started. Liqo's own readiness function is not used: the manager reads and
	// writes it without a lock, as it does with the readiness of each namespace.
	started atomic.Bool
}

var _ manager.Reflector = (*podReflector)(nil)

// newPodReflector returns Liqo's pod reflector with its namespaced reflectors wrapped. b is nil without a broker's
// node.
func newPodReflector(cfg *Config, clients connect.Clients, liqo liqoclient.Interface, sources podip.Sources,
	b *brokernode.Forwarder, support forge.APIServerSupportType,
) *podReflector {
	pr := &podReflector{forwarder: b, PodReflector: workload.NewPodReflector(clients.RemoteConfig, clients.RemoteMetrics,
		&workload.PodReflectorConfig{
			APIServerSupport:          support,
			DisableIPReflection:       cfg.Reflection.DisableIPReflection,
			HomeAPIServerHost:         cfg.Reflection.HomeAPIServerHost,
			HomeAPIServerPort:         cfg.Reflection.HomeAPIServerPort,
			KubernetesServiceIPMapper: kubernetesServiceIP(clients.LocalLiqo, cfg.LiqoNamespace, sources.Networks.View),
			NetConfiguration:          identityConfiguration(),
		},
		&offloadingv1beta1.ReflectorConfig{}, // Its Reflector is replaced below.
	)}
	of := podip.Config{Direct: cfg.Addresses.Direct, Allowed: cfg.Addresses.Allowed}
	status := podstatus.Show
	if b != nil {
		status = func(local, remote *corev1.Pod) *corev1.Pod {
			return brokernode.ShowUnreachable(local, podstatus.Show(local, remote))
		}
		of.Opaque = cfg.Addresses.Opaque
		if cfg.Addresses.Announce {
			of.Origin = string(cfg.ForeignCluster)
		}
	}
	pr.addresses = podip.New(of, sources, pr.local, status)

	namespaced := podlife.Ended(b != nil, pr.local, podspec.Completed(pr.local, pr.addresses.Namespaced(pr.NewNamespaced)))
	serves := func(pod *corev1.Pod) bool { return pod.Spec.NodeName == cfg.Node.Name }
	if b != nil {
		namespaced = b.Handover(pr.local, b.Forward(pr.local, namespaced))
		serves = b.View.Serves
	} else {
		namespaced = podlife.Earlier(pr.local, namespaced)
	}
	namespaced = absence.Confirm(pr.local, clients.Local.CoreV1().Pods, serves, namespaced)
	retries := retry.New()
	mappings := retry.NewMappings(liqo.OffloadingV1beta1().NamespaceMaps(cfg.TenantNamespace), cfg.ForeignCluster)
	pr.Reflector = generic.NewReflector(workload.PodReflectorName, retries.Namespaced(drift.Pods(pr.local, transform.Trimmed(namespaced))),
		func(opts *options.ReflectorOpts) manager.FallbackReflector {
			fallback := pr.NewFallback(opts)
			if b != nil {
				fallback = b.Fallback(pr.local, fallback)
			}
			return retries.Fallback(mappings.Unmapped(fallback))
		},
		cfg.reflector(resources.Pod).NumWorkers, offloadingv1beta1.CustomLiqo, generic.ConcurrencyModeAll)
	return pr
}

func (pr *podReflector) Start(ctx context.Context, opts *options.ReflectorOpts) {
	pr.localPods = opts.LocalPodInformer.Lister()
	transform.TrimPods(opts.LocalPodInformer.Informer())
	synced := *opts
	pr.PodReflector.Start(ctx, synced.WithReadinessFunc(pr.started.Load))
}

func (pr *podReflector) StopNamespace(local, remote string) {
	pr.PodReflector.StopNamespace(local, remote)
	pr.addresses.StopNamespace(local)
	if pr.forwarder != nil {
		pr.forwarder.StopNamespace(local)
	}
}

// local lists the local pods of a namespace, once the reflector has started.
func (pr *podReflector) local(namespace string) corev1listers.PodNamespaceLister {
	return pr.localPods.Pods(namespace)
}

func (pr *podReflector) count() int {
	pods, err := pr.localPods.List(labels.Everything())
	if err != nil {
		return 0 // A cache never fails to list.
	}
	return len(pods)
}

// serves reports whether there are pods that have not ended.
func (pr *podReflector) serves() bool {
	pods, err := pr.localPods.List(labels.Everything())
	return err == nil && slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return !placement.Terminal(pod) })
}
