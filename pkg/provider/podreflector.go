package provider

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"

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
	commands  *commands
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
	pr.commands = newCommands(func() rest.Interface { return clients.Remote.CoreV1().RESTClient() }, clients.RemoteConfig)
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

	retries := retry.New()
	mappings := retry.NewMappings(liqo.OffloadingV1beta1().NamespaceMaps(cfg.TenantNamespace), cfg.ForeignCluster)
	namespaced := pr.NewNamespaced
	for _, decorate := range pr.decorators(cfg, clients, retries) {
		namespaced = decorate(namespaced)
	}
	pr.Reflector = generic.NewReflector(workload.PodReflectorName, namespaced,
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

// decorator wraps a reflector of the pods of one namespace.
type decorator = func(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc

// decorators returns everything around Liqo's reflector of the pods of one namespace, from the inside out. The order
// counts: an outer one sees a pod before an inner one, and reads what the inner ones show.
func (pr *podReflector) decorators(cfg *Config, clients connect.Clients, retries retry.Retries) []decorator {
	type listing = func(local func(namespace string) corev1listers.PodNamespaceLister, next generic.NamespacedReflectorFactoryFunc,
	) generic.NamespacedReflectorFactoryFunc
	local := func(wrap listing) decorator {
		return func(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
			return wrap(pr.local, next)
		}
	}
	b := pr.forwarder
	all := []decorator{
		pr.addresses.Namespaced, // Remote pods show the addresses by which this cluster reaches them.
		func(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
			// ShadowPods have the fields that the provider's API server requires, and the constraints for a broker.
			return podspec.Completed(b == nil, pr.local, next)
		},
		func(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
			return podlife.Ended(b != nil, pr.local, next) // The end of a remote pod is the end of its local pod.
		},
	}
	serves := func(pod *corev1.Pod) bool { return pod.Spec.NodeName == cfg.Node.Name }
	if b == nil {
		all = append(all, local(podlife.Earlier)) // A ShadowPod of an earlier pod of the name is not taken for the present one's.
	} else {
		serves = b.View.Serves
		all = append(all,
			local(b.Forward),  // ShadowPods are written as the broker's decision wants them.
			local(b.Handover), // A pod that the broker moves away is released, and its assignment awaited.
		)
	}
	return append(all,
		func(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
			// A pod is gone only if the API server says so, too.
			return absence.Confirm(pr.local, clients.Local.CoreV1().Pods, serves, next)
		},
		transform.Trimmed,  // The caches keep only the fields that are read.
		local(drift.Pods),  // Changes that Liqo does not forward are reported on the pod.
		retries.Namespaced, // A pod that failed is retried with its own back-off.
	)
}

func (pr *podReflector) Start(ctx context.Context, opts *options.ReflectorOpts) {
	pr.localPods = opts.LocalPodInformer.Lister()
	transform.TrimPods(opts.LocalPodInformer.Informer())
	synced := *opts
	pr.PodReflector.Start(ctx, synced.WithReadinessFunc(pr.started.Load))
}

func (pr *podReflector) StartNamespace(opts *options.NamespacedOpts) {
	pr.commands.startNamespace(opts.LocalNamespace, opts.RemoteNamespace)
	pr.PodReflector.StartNamespace(opts)
}

func (pr *podReflector) StopNamespace(local, remote string) {
	pr.commands.stopNamespace(local)
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

// Exec implements workload.PodHandler.
func (pr *podReflector) Exec(ctx context.Context, namespace, pod, container string, cmd []string, attach api.AttachIO) error {
	return pr.commands.Exec(ctx, namespace, pod, container, cmd, attach)
}

// Attach implements workload.PodHandler.
func (pr *podReflector) Attach(ctx context.Context, namespace, pod, container string, attach api.AttachIO) error {
	return pr.commands.Attach(ctx, namespace, pod, container, attach)
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
