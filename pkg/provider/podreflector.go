package provider

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	ipamlisters "github.com/liqotech/liqo/pkg/client/listers/ipam/v1alpha1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/brokernode"
)

// podReflector is Liqo's pod reflector, with a lens on the remote pods that translates their addresses when they are
// read from the cache, and a way to have all of them looked at again when the translation changes.
//
// The lens is on the lister rather than on the client's watch: an informer passes a Modified event whose
// resourceVersion has not changed only to handlers that are due for a resync, so re-emitting pods from a watch would
// be lost; translating on reading needs no second copy of the pods either.
type podReflector struct {
	*workload.PodReflector
	addresses *addresses
	retries   retries
	mappings  mappings
	// broker is nil unless the pods are those of a broker's node.
	broker *broker

	localPods corev1listers.PodLister
	// started says that Liqo's manager has started, before which there is no use in asking about a pod whose namespace is
	// not. The manager tells its reflectors by a plain bool, which is a data race; so it does for each namespace.
	started atomic.Bool

	mu sync.Mutex
	// namespaces by local name; guarded by mu.
	namespaces map[string]reflectedNamespace
}

// reflectedNamespace is what refresh needs to know of a namespace being reflected.
type reflectedNamespace struct {
	remotePods corev1listers.PodNamespaceLister
	// byAddress has the index of the remote pods by address.
	byAddress cache.Indexer
	queue     cache.ResourceEventHandler
	// ips are nil unless addresses are looked up there.
	ips ipamlisters.IPNamespaceLister
	// stopped is called when the namespace is not reflected any more.
	stopped func()
}

var _ manager.Reflector = (*podReflector)(nil)

func newPodReflector(clients Clients, mappings mappings, addresses *addresses, cfg *workload.PodReflectorConfig,
	reflector *offloadingv1beta1.ReflectorConfig,
) *podReflector {
	pr := &podReflector{
		// With no workers Liqo makes a dummy generic reflector, which the next statement replaces by one that asks us
		// for the namespaced reflectors.
		PodReflector: workload.NewPodReflector(clients.RemoteConfig, clients.RemoteMetrics, cfg,
			&offloadingv1beta1.ReflectorConfig{}),
		addresses:  addresses,
		retries:    newRetries(),
		mappings:   mappings,
		namespaces: map[string]reflectedNamespace{},
	}
	pr.Reflector = generic.NewReflector(workload.PodReflectorName, pr.newNamespaced, pr.newFallback,
		reflector.NumWorkers, offloadingv1beta1.CustomLiqo, generic.ConcurrencyModeAll)
	return pr
}

// Start implements manager.Reflector.
func (pr *podReflector) Start(ctx context.Context, opts *options.ReflectorOpts) {
	pr.localPods = opts.LocalPodInformer.Lister()
	trim(opts.LocalPodInformer.Informer(), trimPod)
	synced := *opts
	pr.PodReflector.Start(ctx, synced.WithReadinessFunc(pr.started.Load))
}

// StopNamespace implements manager.Reflector.
func (pr *podReflector) StopNamespace(local, remote string) {
	pr.mu.Lock()
	stopped := pr.namespaces[local].stopped
	delete(pr.namespaces, local)
	pr.mu.Unlock()
	pr.PodReflector.StopNamespace(local, remote)
	if stopped != nil {
		stopped()
	}
}

func (pr *podReflector) newFallback(opts *options.ReflectorOpts) manager.FallbackReflector {
	fallback := pr.NewFallback(opts)
	if pr.broker != nil {
		fallback = pr.broker.refusals.Fallback(fallback, pr.localPods)
	}
	return &retryingFallback{
		FallbackReflector: unmappedFallback{FallbackReflector: fallback, mappings: pr.mappings}, retries: pr.retries,
	}
}

func (pr *podReflector) newNamespaced(opts *options.NamespacedOpts) manager.NamespacedReflector {
	informer := opts.RemoteFactory.Core().V1().Pods()
	shadows := opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Informer()
	trim(informer.Informer(), trimPod)
	trim(shadows, trimShadowPod)
	if err := informer.Informer().AddIndexers(cache.Indexers{remoteAddress: addressOfPod}); err != nil {
		panic(fmt.Errorf("an informer was started before its reflector: %w", err))
	}

	ips := pr.watchIPs(opts)
	pr.mu.Lock()
	pr.namespaces[opts.LocalNamespace] = reflectedNamespace{
		ips:        ips,
		remotePods: informer.Lister().Pods(opts.RemoteNamespace),
		byAddress:  informer.Informer().GetIndexer(),
		queue:      opts.HandlerFactory(workload.RemoteShadowNamespacedKeyer(opts.LocalNamespace, forge.LiqoNodeName)),
	}
	pr.mu.Unlock()

	seen := *opts
	seen.Ready = allSynced(informer.Informer(), opts.RemoteFactory.Core().V1().Secrets().Informer(), shadows)
	seen.RemoteFactory = podLensFactory{
		SharedInformerFactory: opts.RemoteFactory,
		pods: podLensInformer{
			PodInformer: informer,
			show: func(remote *corev1.Pod) *corev1.Pod {
				return pr.show(opts.LocalNamespace, remote)
			},
		},
	}
	namespaced := func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		return pr.rooted(opts, informer, pr.NewNamespaced(opts))
	}
	if pr.broker != nil {
		namespaced = pr.broker.namespaced(pr, informer)
	}
	return &retryingReflector{
		NamespacedReflector: namespaced(&seen), namespace: opts.LocalNamespace, retries: pr.retries,
	}
}

// rooted returns a reflector of pods, given Liqo's, that says of each where it runs.
func (pr *podReflector) rooted(opts *options.NamespacedOpts, remote corev1informers.PodInformer,
	reflector manager.NamespacedReflector,
) manager.NamespacedReflector {
	root := &rootReflector{
		NamespacedReflector: reflector,
		addresses:           pr.addresses,
		resolve:             func(remote *corev1.Pod) (string, error) { return pr.resolve(opts.LocalNamespace, remote) },
		local:               pr.localPods.Pods(opts.LocalNamespace),
		remote:              remote.Lister().Pods(opts.RemoteNamespace),
		pods:                opts.LocalClient.CoreV1().Pods(opts.LocalNamespace),
		events:              opts.EventBroadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "liqo-broker-vk"}),
		said:                map[string]string{},
		remoteIPs:           map[string]string{},
	}
	pr.mu.Lock()
	namespace := pr.namespaces[opts.LocalNamespace]
	namespace.stopped = root.forgetAll
	pr.namespaces[opts.LocalNamespace] = namespace
	pr.mu.Unlock()
	if !pr.addresses.follow() {
		return root
	}
	return &mappedReflector{
		NamespacedReflector: root,
		local:               root.local,
		ips:                 opts.LocalLiqoFactory.Ipam().V1alpha1().IPs().Lister().IPs(opts.LocalNamespace),
		client:              opts.LocalLiqoClient.IpamV1alpha1().IPs(opts.LocalNamespace),
		touch:               root.annotate,
		unmapped:            map[string]types.UID{},
	}
}

// watchIPs has pods looked at when an IP of theirs changes, and returns the IPs of the namespace; nil if nobody asks.
func (pr *podReflector) watchIPs(opts *options.NamespacedOpts) ipamlisters.IPNamespaceLister {
	if !pr.addresses.follow() && !pr.addresses.opaque {
		return nil
	}
	ips := opts.LocalLiqoFactory.Ipam().V1alpha1().IPs()
	ofPods := opts.HandlerFactory(func(ip metav1.Object) []types.NamespacedName {
		names := []types.NamespacedName{{Namespace: opts.LocalNamespace, Name: ip.GetName()}} // Liqo's are called like their pods.
		for _, owner := range ip.GetOwnerReferences() {
			if owner.Kind == "Pod" && owner.Name != ip.GetName() {
				names = append(names, types.NamespacedName{Namespace: opts.LocalNamespace, Name: owner.Name})
			}
		}
		return names
	})
	if _, err := ips.Informer().AddEventHandler(ofPods); err != nil {
		panic(fmt.Errorf("the informer of IPs was stopped before its reflector was made: %w", err))
	}
	return ips.Lister().IPs(opts.LocalNamespace)
}

// resolve returns the address under which a pod is shown.
func (pr *podReflector) resolve(localNamespace string, remote *corev1.Pod) (string, error) {
	address, err := pr.addresses.resolve(remote)
	if err != nil || !pr.addresses.isOpaque() {
		return address, err
	}
	pr.mu.Lock()
	ips := pr.namespaces[localNamespace].ips
	pr.mu.Unlock()
	if ips == nil {
		return "", ipam.ErrPending // The namespace is being stopped.
	}
	return external(ips, address)
}

// trim sets what an informer of Liqo's manager keeps. The manager starts it later, so that it cannot refuse.
func trim(informer cache.SharedIndexInformer, transform cache.TransformFunc) {
	if err := informer.SetTransform(transform); err != nil {
		panic(fmt.Errorf("an informer was started before its reflector: %w", err))
	}
}

// allSynced says whether all that the pod reflector reads of a namespace is in the caches.
func allSynced(informers ...cache.SharedIndexInformer) func() bool {
	return func() bool {
		for _, informer := range informers {
			if !informer.HasSynced() {
				return false
			}
		}
		return true
	}
}

// remoteAddress is the index of remote pods by their address in the provider's cluster.
const remoteAddress = "status.podIP"

func addressOfPod(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Status.PodIP != "" {
		return []string{pod.Status.PodIP}, nil
	}
	return nil, nil
}

// refresh enqueues every pod that is reflected.
func (pr *podReflector) refresh() {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for _, ns := range pr.namespaces {
		pods, err := ns.remotePods.List(labels.Everything())
		if err != nil {
			continue // A cache never fails to list.
		}
		for _, pod := range pods {
			ns.queue.OnUpdate(nil, pod)
		}
	}
}

// refreshAddress enqueues the pods whose remote pods have an address.
func (pr *podReflector) refreshAddress(ip string) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for _, ns := range pr.namespaces {
		pods, err := ns.byAddress.ByIndex(remoteAddress, ip)
		if err != nil {
			continue // There is no other reason than an index that does not exist.
		}
		for _, pod := range pods {
			ns.queue.OnUpdate(nil, pod)
		}
	}
}

// show returns the remote pod as the reflection is to see it. A pod whose address is not known yet keeps the one that the
// local pod already shows, if any and if that stands for the same: a restart while the network is being reconfigured
// takes no endpoint away.
func (pr *podReflector) show(localNamespace string, remote *corev1.Pod) *corev1.Pod {
	local, _ := pr.localPods.Pods(localNamespace).Get(remote.Name)
	if pr.broker != nil && local != nil {
		remote = brokernode.ShowUnreachable(local, remote)
	}
	if remote.Status.PodIP == "" {
		return remote
	}
	if brokernode.Terminal(remote) && local != nil && pr.addresses.looksUp() {
		return withAddress(remote, local.Status.PodIP) // There is no use in asking.
	}
	address, unknown := pr.resolve(localNamespace, remote)
	if unknown == nil && address == remote.Status.PodIP {
		return remote
	}
	if unknown != nil {
		address = ""
		if local != nil && errors.Is(unknown, ipam.ErrPending) && missing(local, pr.addresses.standsFor(local, remote)) == nil {
			address = local.Status.PodIP
		}
	}

	return withAddress(remote, address)
}

// withAddress returns the pod with another address; the object in the cache stays as it is, and Liqo copies what it
// changes.
func withAddress(pod *corev1.Pod, address string) *corev1.Pod {
	shown := *pod
	shown.Status.PodIP, shown.Status.PodIPs = address, nil
	if address != "" {
		// Liqo reflects one address per pod (forge.LocalPodStatus).
		shown.Status.PodIPs = []corev1.PodIP{{IP: address}}
	}
	return &shown
}
