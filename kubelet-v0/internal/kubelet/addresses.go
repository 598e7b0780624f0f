package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/liqotech/liqo/pkg/liqonet/ipam"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"
)

// errPending means that an address is being looked up; Liqo's reflector retries.
var errPending = errors.New("the address is not known yet")

// remoteIPAM answers from memory; it is this project's *ipam.Client.
type remoteIPAM interface {
	Map(ip string) (address string, known bool)
	Problem(ip string) error
	Forget(ip string)
}

// translator is the IPAM of Liqo's pod reflector. It asks this cluster's IPAM for the addresses of the remote cluster's
// own pods, and the remote IPAM for all other addresses that its pods show.
type translator struct {
	// IpamClient is nil if Liqo's networking is disabled.
	ipam.IpamClient
	ranges func() *ranges
	remote remoteIPAM
}

// GetHomePodIP implements ipam.IpamClient.
func (t *translator) GetHomePodIP(ctx context.Context, request *ipam.GetHomePodIPRequest, opts ...grpc.CallOption,
) (*ipam.GetHomePodIPResponse, error) {
	address, err := netip.ParseAddr(request.GetIp())
	if err != nil {
		return nil, fmt.Errorf("the address of a remote pod: %w", err)
	}
	known := t.ranges()
	if known == nil {
		return nil, fmt.Errorf("%w: no TunnelEndpoint has the CIDRs of the remote cluster", errPending)
	}
	if known.own(address) && t.IpamClient != nil {
		return t.IpamClient.GetHomePodIP(ctx, request, opts...)
	}
	answer, found := t.remote.Map(request.GetIp())
	if !found {
		if problem := t.remote.Problem(request.GetIp()); problem != nil {
			return nil, fmt.Errorf("%w: %w", errPending, problem)
		}
		return nil, errPending
	}
	outside, err := netip.ParseAddr(answer)
	if err != nil {
		return nil, fmt.Errorf("the remote IPAM's answer: %w", err)
	}
	here, err := known.reached(outside)
	if err != nil {
		return nil, err
	}
	return &ipam.GetHomePodIPResponse{HomeIP: here.String()}, nil
}

// podReflector is Liqo's pod reflector. It tracks the remote pods that show an address, to enqueue them when the
// address's translation is known, and to release the translation when no pod shows the address any more.
type podReflector struct {
	*workload.PodReflector
	forget func(ip string)

	mu         sync.Mutex
	namespaces map[string]*namespace // By local name; guarded by mu.
	shown      map[string]int        // How many pods show an address; guarded by mu.
}

// namespace is a namespace whose pods are reflected.
type namespace struct {
	enqueue cache.ResourceEventHandler
	pods    map[types.UID]*corev1.Pod // The pods that have an address; guarded by podReflector.mu.
}

// newNamespaced is workload.PodReflector.NewNamespaced, and also tracks the addresses.
func (r *podReflector) newNamespaced(opts *options.NamespacedOpts) manager.NamespacedReflector {
	n := &namespace{
		enqueue: opts.HandlerFactory(workload.RemoteShadowNamespacedKeyer(opts.LocalNamespace, forge.LiqoNodeName)),
		pods:    map[types.UID]*corev1.Pod{},
	}
	r.mu.Lock()
	r.namespaces[opts.LocalNamespace] = n
	r.mu.Unlock()
	set := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			r.set(n, opts.LocalNamespace, pod)
		}
	}
	if _, err := opts.RemoteFactory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: set, UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				r.remove(n, pod.UID)
			}
		},
	}); err != nil {
		panic(err) // The informer has not started, so this cannot fail. Liqo panics too.
	}
	return r.NewNamespaced(opts)
}

// StopNamespace implements manager.Reflector.
func (r *podReflector) StopNamespace(local, remote string) {
	r.PodReflector.StopNamespace(local, remote)
	r.mu.Lock()
	n := r.namespaces[local]
	delete(r.namespaces, local)
	r.mu.Unlock()
	if n == nil {
		return
	}
	for _, uid := range r.uids(n) {
		r.remove(n, uid)
	}
}

func (r *podReflector) uids(n *namespace) []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []types.UID
	for uid := range n.pods {
		all = append(all, uid)
	}
	return all
}

// set keeps a pod as long as it shows an address. A pod of a namespace that is no longer reflected is not kept.
func (r *podReflector) set(n *namespace, local string, pod *corev1.Pod) {
	if pod.Status.PodIP == "" || pod.Labels[forge.LiqoOriginClusterNodeName] != forge.LiqoNodeName {
		r.remove(n, pod.UID)
		return
	}
	r.mu.Lock()
	if r.namespaces[local] != n {
		r.mu.Unlock()
		return
	}
	before := n.pods[pod.UID]
	n.pods[pod.UID] = pod
	if before != nil && before.Status.PodIP == pod.Status.PodIP {
		r.mu.Unlock()
		return
	}
	r.shown[pod.Status.PodIP]++
	r.mu.Unlock()
	r.release(before)
}

func (r *podReflector) remove(n *namespace, uid types.UID) {
	r.mu.Lock()
	before := n.pods[uid]
	delete(n.pods, uid)
	r.mu.Unlock()
	r.release(before)
}

// release forgets the address of a pod that no longer shows it, unless another pod shows it. pod may be nil.
func (r *podReflector) release(pod *corev1.Pod) {
	if pod == nil {
		return
	}
	ip := pod.Status.PodIP
	r.mu.Lock()
	r.shown[ip]--
	last := r.shown[ip] == 0
	if last {
		delete(r.shown, ip)
	}
	r.mu.Unlock()
	if last {
		r.forget(ip)
	}
}

// refresh enqueues the pods that show an address; all pods with "".
func (r *podReflector) refresh(ip string) {
	r.mu.Lock()
	var enqueue []func()
	for _, n := range r.namespaces {
		for _, pod := range n.pods {
			if ip == "" || pod.Status.PodIP == ip {
				enqueue = append(enqueue, func() { n.enqueue.OnUpdate(pod, pod) })
			}
		}
	}
	r.mu.Unlock()
	for _, add := range enqueue {
		add()
	}
}
