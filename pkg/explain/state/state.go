// Package state keeps a scheduler's state equal to the objects of an API: the pods of the broker's node, and the
// provider clusters with their VirtualNodes and NamespaceMaps. Explanations use it for their decisions. It needs no
// running broker.
package state

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// State is the scheduler's state as the objects of an API show it. It is safe for concurrent use. Objects that are
// passed to it are not changed afterwards.
type State struct {
	*sources
	node string

	// mu guards all below.
	mu        sync.Mutex
	scheduler *scheduler.State
	pods      map[types.NamespacedName]*corev1.Pod
}

// New returns an empty State for the pods of the broker's node.
func New(node string) *State {
	return &State{
		sources: newSources(), node: node,
		scheduler: scheduler.NewState(), pods: map[types.NamespacedName]*corev1.Pod{},
	}
}

// Read returns a State of the present objects of an API server.
func Read(ctx context.Context, c client.Reader, node string) (*State, error) {
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
	s := New(node)
	each(providers.Items, s.SetProvider)
	each(virtualNodes.Items, func(vn *offloadingv1beta1.VirtualNode) { s.SetVirtualNode(vn) })
	each(namespaceMaps.Items, s.SetNamespaceMap)
	each(namespaces.Items, func(namespace *corev1.Namespace) { s.SetNamespace(namespace) })
	each(pods.Items, s.SetPod)
	return s, nil
}

func each[T any](items []T, set func(*T)) {
	for i := range items {
		set(&items[i])
	}
}

// SetPod adds a pod, or replaces the one of its name. Pods of other nodes are left out.
func (s *State) SetPod(pod *corev1.Pod) {
	name := client.ObjectKeyFromObject(pod)
	if pod.Spec.NodeName != s.node {
		s.RemovePod(name)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(name)
	s.pods[name] = pod
	s.assign(pod)
}

// PodsAt returns the pods that are assigned to providers and have not ended, sorted by namespace and name.
func (s *State) PodsAt(providers []string) (at []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range s.pods {
		if slices.Contains(providers, placement.AssignedTo(pod).Provider) && !placement.Terminal(pod) && pod.DeletionTimestamp == nil {
			at = append(at, pod)
		}
	}
	slices.SortFunc(at, func(x, y *corev1.Pod) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return at
}

// SharesClaim reports whether another pod that has not ended uses a claim of the pod.
func (s *State) SharesClaim(pod *corev1.Pod, claim string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.pods {
		if other.UID != pod.UID && other.Namespace == pod.Namespace && !placement.Terminal(other) &&
			slices.Contains(placement.ClaimsOf(other), claim) {
			return true
		}
	}
	return false
}

// RemovePod removes the pod of a name, if there is one.
func (s *State) RemovePod(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(name)
	delete(s.pods, name)
}

// assign counts the requests of a pod that is assigned. The caller holds mu.
func (s *State) assign(pod *corev1.Pod) {
	if at := placement.PlaceOf(pod); at != (scheduler.Place{}) {
		s.scheduler.Assign(placement.AssignmentOf(pod, at))
	}
}

// release stops counting the requests of a pod. The caller holds mu.
func (s *State) release(name types.NamespacedName) {
	if pod := s.pods[name]; pod != nil {
		s.scheduler.Release(scheduler.HolderOf(pod.UID))
	}
}

// Decide decides about a pod, without the requests of a pod of that name which is in the State. It also returns the
// providers, in the order of the verdicts; the caller must not change them.
func (s *State) Decide(now time.Time, pod *scheduler.Pod, policy *scheduler.Policy) (scheduler.Decision, []scheduler.Provider) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	s.mu.Lock()
	s.refresh()
	of := *pod
	if counted := s.pods[name]; counted != nil {
		of.UID = counted.UID
	}
	snapshot := s.scheduler.Snapshot(&of)
	snapshot.Release(scheduler.HolderOf(of.UID))
	s.mu.Unlock()
	return snapshot.Decide(now, pod, policy), snapshot.Providers()
}

// refresh translates the providers whose objects have changed since the last decision. The caller holds mu.
func (s *State) refresh() {
	for id, from := range s.takeChanged() {
		if from.provider == nil {
			s.scheduler.RemoveProvider(id)
			continue
		}
		s.scheduler.SetProvider(placement.Provider(from.provider, from.virtualNodes, from.namespaceMaps))
	}
}
