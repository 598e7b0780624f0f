package podip

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	ipamlisters "github.com/liqotech/liqo/pkg/client/listers/ipam/v1alpha1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
	"github.com/capacitorset/liqo-broker-vk/pkg/remap"
)

// Addresses are the addresses of the pods in all reflected namespaces.
type Addresses struct {
	resolver
	local  func(namespace string) corev1listers.PodNamespaceLister
	status func(local, remote *corev1.Pod) *corev1.Pod

	mu sync.Mutex
	// namespaces by local name; guarded by mu.
	namespaces map[string]*locator
}

type namespace struct {
	*Addresses
	local corev1listers.PodNamespaceLister
	// remote lists the pods with the addresses that the remote cluster shows.
	remote corev1listers.PodNamespaceLister
	// remoteByAddress has the index remoteAddress.
	remoteByAddress cache.Indexer
	// queue enqueues the local pod of a remote pod.
	queue cache.ResourceEventHandler
	// ips is nil unless the addresses depend on IPs of this cluster.
	ips ipamlisters.IPNamespaceLister
}

// New returns the addresses of pods. local lists the local pods of a namespace. It is called after Liqo's pod reflector
// has started. status, if not nil, shows a remote pod with another status for its local pod.
func New(cfg Config, sources Sources, local func(namespace string) corev1listers.PodNamespaceLister,
	status func(local, remote *corev1.Pod) *corev1.Pod,
) *Addresses {
	return &Addresses{
		resolver: resolver{Sources: sources, Config: cfg}, local: local, status: status, namespaces: map[string]*locator{},
	}
}

// namespaceReflector is Liqo's pod reflector of a namespace.
type namespaceReflector interface {
	manager.NamespacedReflector
	ForgetPodInfo(name string)
}

var _ namespaceReflector = (*workload.NamespacedPodReflector)(nil)

// Namespaced wraps Liqo's pod reflector of a namespace, which next makes, so that pods get this cluster's addresses.
func (a *Addresses) Namespaced(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		n := a.start(opts)
		shown := *opts
		writes := &ownWrites{}
		shown.LocalClient = localClient{opts.LocalClient, n.remote, writes}
		shown.RemoteFactory = transform.Factory{SharedInformerFactory: opts.RemoteFactory, Pods: transform.Show(n.show)}
		located := &locator{
			namespaceReflector: next(&shown).(namespaceReflector),
			namespace:          n,
			writes:             writes,
			pods:               opts.LocalClient.CoreV1().Pods(opts.LocalNamespace),
			events:             opts.EventBroadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "liqo-broker-vk"}),
			reported:           map[string]string{},
			remoteIPs:          map[string]string{},
		}
		a.mu.Lock()
		a.namespaces[opts.LocalNamespace] = located
		a.mu.Unlock()
		if !a.changes() {
			return located
		}
		return &repairer{locator: located, localNamespace: opts.LocalNamespace, remapper: remap.New(&podIPs{
			ips: n.ips, client: opts.LocalLiqoClient.IpamV1alpha1().IPs(opts.LocalNamespace), annotate: located.annotate,
		})}
	}
}

// start sets up the informers of a namespace.
func (a *Addresses) start(opts *options.NamespacedOpts) *namespace {
	informer := opts.RemoteFactory.Core().V1().Pods()
	transform.Must(informer.Informer().AddIndexers(cache.Indexers{remoteAddress: addressOfPod}))
	return &namespace{
		Addresses:       a,
		local:           a.local(opts.LocalNamespace),
		remote:          informer.Lister().Pods(opts.RemoteNamespace),
		remoteByAddress: informer.Informer().GetIndexer(),
		queue:           opts.HandlerFactory(workload.RemoteShadowNamespacedKeyer(opts.LocalNamespace, forge.LiqoNodeName)),
		ips:             a.watchIPs(opts),
	}
}

// watchIPs makes a change of an IP enqueue its pods, and returns the IPs of the namespace; nil if no address depends on
// them.
func (a *Addresses) watchIPs(opts *options.NamespacedOpts) ipamlisters.IPNamespaceLister {
	if !a.changes() && !a.Opaque {
		return nil
	}
	ips := opts.LocalLiqoFactory.Ipam().V1alpha1().IPs()
	ofPods := opts.HandlerFactory(func(ip metav1.Object) []types.NamespacedName {
		// Liqo's IP has the name of its pod. The broker's IP has its pods as owners.
		names := []types.NamespacedName{{Namespace: opts.LocalNamespace, Name: ip.GetName()}}
		for _, owner := range ip.GetOwnerReferences() {
			if owner.Kind == "Pod" && owner.Name != ip.GetName() {
				names = append(names, types.NamespacedName{Namespace: opts.LocalNamespace, Name: owner.Name})
			}
		}
		return names
	})
	_, err := ips.Informer().AddEventHandler(ofPods)
	transform.Must(err)
	return ips.Lister().IPs(opts.LocalNamespace)
}

// StopNamespace is called when a namespace is no longer reflected.
func (a *Addresses) StopNamespace(local string) {
	a.mu.Lock()
	stopped := a.namespaces[local]
	delete(a.namespaces, local)
	a.mu.Unlock()
	if stopped != nil {
		stopped.forgetAll()
	}
}

// Refresh enqueues all reflected pods.
func (a *Addresses) Refresh() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.namespaces {
		pods, err := n.remote.List(labels.Everything())
		if err != nil {
			continue // A cache never fails to list.
		}
		for _, pod := range pods {
			n.queue.OnUpdate(nil, pod)
		}
	}
}

// RefreshAddress enqueues the pods whose remote pods have the address.
func (a *Addresses) RefreshAddress(ip string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.namespaces {
		pods, err := n.remoteByAddress.ByIndex(remoteAddress, ip)
		if err != nil {
			continue // The index exists.
		}
		for _, pod := range pods {
			n.queue.OnUpdate(nil, pod)
		}
	}
}

// remoteAddress is the index of remote pods by their address in the remote cluster.
const remoteAddress = "status.podIP"

func addressOfPod(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Status.PodIP != "" {
		return []string{pod.Status.PodIP}, nil
	}
	return nil, nil
}
