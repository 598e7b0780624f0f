// Package endpoints shows Liqo the endpoints on a broker's node as endpoints at the provider clusters where their pods
// run.
package endpoints

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/exposition"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podip"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// providerNodePrefix precedes the id of a provider cluster in the name of the node that represents it. No real node's
// name has a slash.
const providerNodePrefix = "brokering.liqo.io/"

// byPod is the index of EndpointSlices by the names of the pods in them.
const byPod = "brokering.liqo.io/pod"

// Reflector returns Liqo's EndpointSlice reflector of a namespace, which reads transformed listers:
//
//   - Every endpoint on node, the broker's, is shown on a node that represents the provider cluster where its pod runs,
//     and every endpoint that a consumer has sent here on a node that represents the consumer. Liqo reads the cluster
//     of an endpoint from its node, to omit the endpoints that run at its own remote cluster and to connect providers
//     directly. It omits endpoints whose node it does not find, so without this transform a Service would end here.
//   - Addresses are shown as the provider reaches them (reach). For a Service with direct connections they are the
//     pods' addresses in the provider clusters where they run (connect).
//
// The label v1alpha1.ProviderLabel of a pod names the cluster where it runs. An endpoint is omitted if its pod is
// unknown or not assigned, or if its address is not mapped. When that changes, the EndpointSlices that name it are
// enqueued.
//
// localPodCIDRs are the CIDRs of this cluster's own pods. translating reports whether Liqo connects the clusters'
// networks.
func Reflector(node string, localPodCIDRs []string, translating func() bool) generic.NamespacedReflectorFactoryFunc {
	var local []netip.Prefix
	for _, cidr := range localPodCIDRs {
		// The flag is validated; Liqo would panic here, too.
		local = append(local, netip.MustParsePrefix(cidr).Masked())
	}
	next := exposition.NewNamespacedEndpointSliceReflector(everywhere())
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		pods := opts.LocalFactory.Core().V1().Pods()
		endpointSlices := opts.LocalFactory.Discovery().V1().EndpointSlices().Informer()
		ips := opts.LocalLiqoFactory.Ipam().V1alpha1().IPs().Informer()
		transform.TrimToPlace(pods.Informer())
		transform.Must(endpointSlices.AddIndexers(cache.Indexers{byPod: podsIn, byAddress: addressesIn}))
		transform.Must(ips.AddIndexers(cache.Indexers{byMapped: mappedBy}))

		ofPod := opts.HandlerFactory(func(pod metav1.Object) []types.NamespacedName {
			return slicesBy(endpointSlices.GetIndexer(), byPod, opts.LocalNamespace, pod.GetName())
		})
		_, err := pods.Informer().AddEventHandler(whenReassigned(ofPod))
		transform.Must(err)
		_, err = ips.AddEventHandler(opts.HandlerFactory(func(ip metav1.Object) []types.NamespacedName {
			return withAddress(endpointSlices.GetIndexer(), opts.LocalNamespace, ip)
		}))
		transform.Must(err)

		endpoints := endpointLens{
			node: node, pods: pods.Lister().Pods(opts.LocalNamespace),
			reach: reach{
				localPods: local, translating: translating, ips: ips.GetIndexer(),
				services: opts.LocalFactory.Core().V1().Services().Lister().Services(opts.LocalNamespace),
			},
		}
		seen := *opts
		seen.LocalFactory = transform.Factory{
			SharedInformerFactory: opts.LocalFactory,
			EndpointSlices:        transform.Show(endpoints.show), Nodes: withProviderNodes,
		}
		return next(&seen)
	}
}

// podsIn is a cache.IndexFunc. It returns the names of the pods behind the endpoints.
func podsIn(obj any) ([]string, error) {
	endpointSlice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, nil
	}
	var names []string
	for i := range endpointSlice.Endpoints {
		if ref := podOf(&endpointSlice.Endpoints[i]); ref != nil {
			names = append(names, ref.Name)
		}
	}
	return names, nil
}

func podOf(endpoint *discoveryv1.Endpoint) *corev1.ObjectReference {
	if ref := endpoint.TargetRef; ref != nil && ref.Kind == "Pod" {
		return ref
	}
	return nil
}

// slicesBy returns the keys of the EndpointSlices under a value of an index.
func slicesBy(index cache.Indexer, name, namespace, value string) []types.NamespacedName {
	found, err := index.ByIndex(name, value)
	if err != nil {
		return nil // The index exists.
	}
	keys := make([]types.NamespacedName, 0, len(found))
	for _, obj := range found {
		keys = append(keys, types.NamespacedName{Namespace: namespace, Name: obj.(*discoveryv1.EndpointSlice).Name})
	}
	return keys
}

// whenReassigned enqueues pods that were created or that now run elsewhere. The deletion of a pod changes its
// EndpointSlices itself.
func whenReassigned(queue cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { queue.OnAdd(obj, false) },
		UpdateFunc: func(old, current any) {
			before, now := old.(*corev1.Pod), current.(*corev1.Pod)
			changed := func(key string) bool { return before.Annotations[key] != now.Annotations[key] }
			if before.UID != now.UID || before.Labels[v1alpha1.ProviderLabel] != now.Labels[v1alpha1.ProviderLabel] ||
				slices.ContainsFunc(transform.PlaceAnnotations(), changed) {
				queue.OnUpdate(old, current)
			}
		},
	}
}

type endpointLens struct {
	node  string
	pods  corev1listers.PodNamespaceLister
	reach reach
}

// show returns the EndpointSlice as Liqo sees it. The object in the cache does not change.
func (l endpointLens) show(endpointSlice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	shown := *endpointSlice
	shown.Endpoints = make([]discoveryv1.Endpoint, 0, len(endpointSlice.Endpoints))
	translating := l.reach.translating()
	var all []located
	for i := range endpointSlice.Endpoints {
		at, placed := l.locate(endpointSlice.Endpoints[i], consumerOf(endpointSlice))
		if !placed {
			continue
		}
		if translating && !at.outside {
			at.Addresses = l.reach.of(&at.Endpoint)
		}
		all = append(all, at)
	}
	if translating && l.reach.direct(endpointSlice) {
		connect(all, endpointSlice.AddressType)
	}
	for i := range all {
		if all[i].Addresses != nil {
			shown.Endpoints = append(shown.Endpoints, all[i].Endpoint)
		}
	}
	return &shown
}

// located is an endpoint with the node of the cluster where it runs.
type located struct {
	discoveryv1.Endpoint
	// outside is true if its address is already in the external range.
	outside bool
	// root is the place where its pod runs; zero if that is unknown, or in this cluster.
	root podip.Root
}

// locate moves an endpoint on the broker's node, or on the node named like the consumer, to the node of the cluster
// where it runs. Other endpoints keep their node. placed is false if the cluster is unknown.
func (l endpointLens) locate(endpoint discoveryv1.Endpoint, consumer string) (at located, placed bool) {
	at.Endpoint = endpoint
	if endpoint.NodeName == nil {
		return at, true
	}
	switch *endpoint.NodeName {
	case l.node:
		pod := l.podOf(podOf(&endpoint))
		if pod == nil || pod.Labels[v1alpha1.ProviderLabel] == "" {
			return at, false
		}
		at.NodeName = ptr.To(providerNodePrefix + pod.Labels[v1alpha1.ProviderLabel])
		inner := pod.Annotations[v1alpha1.InnerIPAnnotation]
		at.outside = inner != "" && !slices.Contains(endpoint.Addresses, inner)
		// The annotations may still belong to the previous provider.
		if root := podip.RootOf(pod.Annotations); root.Cluster == pod.Labels[v1alpha1.ProviderLabel] {
			at.root = root
		}
	case consumer:
		at.NodeName = ptr.To(providerNodePrefix + consumer)
	}
	return at, true
}

// consumerOf returns the id of the cluster that an EndpointSlice was reflected from; "" if it is this cluster's own.
// Its endpoints are on a node of that name (forge.RemoteEndpointSliceEndpoints).
func consumerOf(endpointSlice *discoveryv1.EndpointSlice) string {
	if !forge.IsEndpointSliceManagedByReflection(endpointSlice) {
		return ""
	}
	return endpointSlice.Labels[forge.LiqoOriginClusterIDKey]
}

// podOf returns the pod of an endpoint; nil if it is unknown.
func (l endpointLens) podOf(ref *corev1.ObjectReference) *corev1.Pod {
	if ref == nil {
		return nil
	}
	pod, err := l.pods.Get(ref.Name)
	if err != nil || ref.UID != "" && ref.UID != pod.UID {
		return nil
	}
	return pod
}

// withProviderNodes is a transform.Lens that adds, to the real nodes, the nodes that represent provider clusters and
// the nodes of relayed endpoints. Liqo gets nodes by name only.
func withProviderNodes(nodes cache.Indexer) cache.Indexer { return providerNodes{nodes} }

type providerNodes struct{ cache.Indexer }

func (n providerNodes) GetByKey(name string) (any, bool, error) {
	if node, found := strings.CutPrefix(name, relayedNodePrefix); found {
		return n.relayed(name, node)
	}
	provider, found := strings.CutPrefix(name, providerNodePrefix)
	if !found {
		return n.Indexer.GetByKey(name)
	}
	// The node has the two labels that Liqo reads from a virtual node.
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{consts.TypeLabel: consts.TypeNode, consts.RemoteClusterID: provider},
	}}, true, nil
}

// relayed returns a node of the same cluster as another one that Liqo does not treat as a virtual node.
func (n providerNodes) relayed(name, of string) (any, bool, error) {
	obj, exists, err := n.GetByKey(of)
	node, ok := obj.(*corev1.Node)
	if err != nil || !exists || !ok {
		return obj, exists, err
	}
	shown := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if cluster, ok := node.Labels[consts.RemoteClusterID]; ok {
		shown.Labels[consts.RemoteClusterID] = cluster
	}
	return shown, true, nil
}
