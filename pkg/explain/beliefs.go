package explain

import (
	"context"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/follow"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Beliefs are the scheduler's state as the API tells it: the broker's node has these pods, and there are these providers.
// They are safe for concurrent use.
type Beliefs struct {
	node   string
	synced atomic.Bool

	// mu guards all below.
	mu        sync.RWMutex
	state     *scheduler.State
	pods      map[types.NamespacedName]*corev1.Pod
	providers map[string]*v1alpha1.ProviderCluster
	// virtualNodes and namespaceMaps are by the provider that they name.
	virtualNodes  *follow.Groups[*offloadingv1beta1.VirtualNode]
	namespaceMaps *follow.Groups[*offloadingv1beta1.NamespaceMap]
	// tenants are the providers of their tenant namespaces.
	tenants map[string]string
	// stale are the providers that the state does not show as they are.
	stale sets.Set[string]
}

// NewBeliefs returns Beliefs that know nothing yet about a broker's node.
func NewBeliefs(node string) *Beliefs {
	return &Beliefs{
		node: node, state: scheduler.NewState(),
		pods: map[types.NamespacedName]*corev1.Pod{}, providers: map[string]*v1alpha1.ProviderCluster{},
		virtualNodes:  follow.NewGroups[*offloadingv1beta1.VirtualNode](),
		namespaceMaps: follow.NewGroups[*offloadingv1beta1.NamespaceMap](),
		tenants:       map[string]string{}, stale: sets.New[string](),
	}
}

// Read returns what an API says now about a broker's node.
func Read(ctx context.Context, c client.Reader, node string) (*Beliefs, error) {
	var providers v1alpha1.ProviderClusterList
	var virtualNodes offloadingv1beta1.VirtualNodeList
	var namespaceMaps offloadingv1beta1.NamespaceMapList
	var namespaces corev1.NamespaceList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&providers, &virtualNodes, &namespaceMaps, &namespaces, &pods} {
		if err := c.List(ctx, list); err != nil {
			return nil, err
		}
	}
	b := NewBeliefs(node)
	each(providers.Items, b.setProvider)
	each(virtualNodes.Items, b.setVirtualNode)
	each(namespaceMaps.Items, b.setNamespaceMap)
	each(namespaces.Items, b.setNamespace)
	each(pods.Items, b.setPod)
	b.synced.Store(true)
	return b, nil
}

func each[T any](items []T, set func(*T)) {
	for i := range items {
		set(&items[i])
	}
}

// Synced says whether everything that there was when Run began is known.
func (b *Beliefs) Synced() bool { return b.synced.Load() }

// Run keeps the beliefs up to date until ctx ends. It returns nil then, and an error if the cache cannot watch something.
// Somebody else starts the cache.
func (b *Beliefs) Run(ctx context.Context, c cache.Cache) error {
	return follow.Run(ctx, c, []follow.Source{
		follow.Objects(&corev1.Namespace{}, b.setNamespace, b.removeNamespace),
		follow.Objects(&v1alpha1.ProviderCluster{}, b.setProvider, b.removeProvider),
		follow.Objects(&offloadingv1beta1.VirtualNode{}, b.setVirtualNode, b.removeVirtualNode),
		follow.Objects(&offloadingv1beta1.NamespaceMap{}, b.setNamespaceMap, b.removeNamespaceMap),
		follow.Objects(&corev1.Pod{}, b.setPod, b.removePod),
	}, func() { b.synced.Store(true) })
}

// decide calls f with the state, which f does not change.
func (b *Beliefs) decide(f func(*scheduler.State)) {
	b.refresh()
	b.mu.RLock()
	defer b.mu.RUnlock()
	f(b.state)
}

// decideWithout calls f with the state as it would be if a pod took no room.
func (b *Beliefs) decideWithout(pod types.NamespacedName, f func(*scheduler.State)) {
	b.refresh()
	b.mu.Lock()
	defer b.mu.Unlock()
	if counted := b.pods[pod]; counted != nil {
		b.state.Release(counted.UID)
		defer b.assign(counted)
	}
	f(b.state)
}

// refresh shows the providers that have changed as they are.
func (b *Beliefs) refresh() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.stale {
		if pc := b.providers[id]; pc != nil {
			b.state.SetProvider(shownProvider(pc, b.virtualNodes.Of(id), b.ownMaps(id)))
		} else {
			b.state.RemoveProvider(id)
		}
	}
	b.stale = sets.New[string]()
}

// ownMaps are the NamespaceMaps that name a provider, and are its own to write.
func (b *Beliefs) ownMaps(provider string) []*offloadingv1beta1.NamespaceMap {
	var own []*offloadingv1beta1.NamespaceMap
	for _, m := range b.namespaceMaps.Of(provider) {
		if b.tenants[m.Namespace] == provider {
			own = append(own, m)
		}
	}
	return own
}

func (b *Beliefs) setPod(pod *corev1.Pod) {
	name := client.ObjectKeyFromObject(pod)
	if pod.Spec.NodeName != b.node {
		b.removePod(name)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.pods[name]; before != nil {
		b.state.Release(before.UID)
	}
	b.pods[name] = pod
	b.assign(pod)
}

// assign counts a pod where it takes room; it needs the lock.
func (b *Beliefs) assign(pod *corev1.Pod) {
	if at := placement.PlaceOf(pod); at != "" && !placement.Terminal(pod) {
		b.state.Assign(scheduler.Assignment{
			UID: pod.UID, VirtualNode: at, App: placement.AppOf(pod), Requests: scheduler.PodRequests(&pod.Spec),
		})
	}
}

func (b *Beliefs) removePod(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.pods[name]; before != nil {
		b.state.Release(before.UID)
		delete(b.pods, name)
	}
}

func (b *Beliefs) setProvider(pc *v1alpha1.ProviderCluster) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.providers[pc.Name] = pc
	b.stale.Insert(pc.Name)
}

func (b *Beliefs) removeProvider(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.providers, name.Name)
	b.stale.Insert(name.Name)
}

func (b *Beliefs) setVirtualNode(vn *offloadingv1beta1.VirtualNode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stale.Insert(b.virtualNodes.Set(client.ObjectKeyFromObject(vn), string(vn.Spec.ClusterID), vn)...)
}

func (b *Beliefs) removeVirtualNode(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stale.Insert(b.virtualNodes.Remove(name)...)
}

func (b *Beliefs) setNamespaceMap(m *offloadingv1beta1.NamespaceMap) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stale.Insert(b.namespaceMaps.Set(client.ObjectKeyFromObject(m), m.Labels[consts.RemoteClusterID], m)...)
}

func (b *Beliefs) removeNamespaceMap(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stale.Insert(b.namespaceMaps.Remove(name)...)
}

func (b *Beliefs) setNamespace(namespace *corev1.Namespace) {
	b.setTenant(namespace.Name, placement.TenantOf(namespace))
}

func (b *Beliefs) removeNamespace(name types.NamespacedName) { b.setTenant(name.Name, "") }

// setTenant says whose tenant namespace that is; "" for nobody's.
func (b *Beliefs) setTenant(namespace, provider string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.tenants[namespace]
	if before == provider {
		return
	}
	b.stale.Insert(before, provider)
	if delete(b.tenants, namespace); provider != "" {
		b.tenants[namespace] = provider
	}
}
