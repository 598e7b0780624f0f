// Package restore reads which pods are assigned, and where, when a process begins to lead.
package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

const (
	// restoreChunk is how many pods are read at once.
	restoreChunk = 500
	// restoreTimeout bounds one try to read all objects of a kind. The callers of Restore retry with backoff.
	restoreTimeout = 30 * time.Second
	// cacheDelay and longestCacheDelay are the backoff between two comparisons of the cache with the API.
	cacheDelay        = 50 * time.Millisecond
	longestCacheDelay = 2 * time.Second
)

// errCacheLags means that the cache does not yet show the state of the API server.
var errCacheLags = errors.New("the cache is behind the API server")

// Restorer counts, once, the resources of all assigned pods when this process begins to lead, including pods that have
// ended. It may have been a standby for days. Before that no decision is made, and no number of pods is shown.
//
// It reads the pods from the API server, since the cache may lag behind the last writes of an earlier leader: an
// informer's first list has resourceVersion=0 (client-go's Reflector), which a watch cache answers that may be behind
// etcd, and its watch may be late. A list without a resourceVersion is consistent. Then it waits until the cache shows
// the same assignments: a pod that was not shown as assigned would be assigned again, and the conflict would free its
// capacity. It waits for VirtualNodes and NamespaceMaps as well: if one was not shown, its pods would be treated as the
// pods of a VirtualNode that is gone; and for ProviderClusters, whose status shows where pods that were moved away may
// still run.
type Restorer struct {
	live, cache client.Reader
	node        string
	state       *state.Federation
	clock       clock.PassiveClock

	// turn is held by the caller that restores. It is a channel, so that the others wait no longer than their contexts.
	turn chan struct{}
	// began is when this process began to lead; nil before it is restored.
	began atomic.Pointer[time.Time]
}

// New returns a Restorer. The cache holds the pods of the broker's node only; live reads from the API server.
func New(live, cache client.Reader, node string, known *state.Federation, passive clock.PassiveClock) *Restorer {
	return &Restorer{live: live, cache: cache, node: node, state: known, clock: passive, turn: make(chan struct{}, 1)}
}

// Restore returns once the assigned pods are counted. After an error it is called again.
func (r *Restorer) Restore(ctx context.Context) error {
	if r.began.Load() != nil {
		return nil
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.began.Load() != nil {
		return nil
	}
	for _, of := range []client.ObjectList{
		&offloadingv1beta1.VirtualNodeList{}, &offloadingv1beta1.NamespaceMapList{}, &v1alpha1.ProviderClusterList{},
	} {
		if err := r.waitShown(ctx, of); err != nil {
			return fmt.Errorf("%T: %w", of, err)
		}
	}
	assigned, err := r.assigned(ctx)
	if err != nil {
		return fmt.Errorf("assigned pods: %w", err)
	}
	namespaces, err := r.namespaces(ctx)
	if err != nil {
		return fmt.Errorf("namespaces of consumers: %w", err)
	}
	for _, pod := range assigned {
		if namespace := namespaces[pod.Namespace]; namespace != nil {
			r.state.ObserveAccount(pod, placement.AccountOf(pod, namespace))
		}
		switch at := placement.PlaceOf(pod); {
		case placement.Terminal(pod):
			r.state.ObserveEnded(pod, at)
		case at == scheduler.Place{}:
			r.state.ObserveLeft(pod, at)
		default:
			r.state.ObserveAssigned(pod, at)
		}
	}
	now := r.clock.Now()
	r.began.Store(&now)
	return nil
}

// LeadsSince returns when this process began to lead; zero before it is restored.
func (r *Restorer) LeadsSince() time.Time {
	if began := r.began.Load(); began != nil {
		return *began
	}
	return time.Time{}
}

// assigned returns the pods that take capacity, once the cache has shown every assignment that the API server shows. A
// pod that the cache no longer shows has ended, or left, since.
func (r *Restorer) assigned(ctx context.Context) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	shown := sets.New[assignment]()
	for delay := cacheDelay; ; delay = min(2*delay, longestCacheDelay) {
		live, err := r.list(ctx)
		if err != nil {
			return nil, err
		}
		var cached corev1.PodList
		if err := r.cache.List(ctx, &cached, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		now := sets.New[assignment]()
		for _, pod := range assignedOf(&cached) {
			now.Insert(assignmentOf(pod))
		}
		shown = shown.Union(now)
		if !slices.ContainsFunc(live, func(pod *corev1.Pod) bool { return !shown.Has(assignmentOf(pod)) }) {
			return slices.DeleteFunc(live, func(pod *corev1.Pod) bool { return !now.Has(assignmentOf(pod)) }), nil
		}
		if err := pause(ctx, delay); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, delay time.Duration) error {
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errCacheLags, ctx.Err())
	}
}

// waitShown waits until the cache shows all objects of a kind as the API server had them at first, or newer. Later
// changes do not delay it: a consumer could cause them all the time.
func (r *Restorer) waitShown(ctx context.Context, kind client.ObjectList) error {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	missing, err := versions(ctx, r.live, kind)
	if err != nil {
		return err
	}
	for delay := cacheDelay; ; delay = min(2*delay, longestCacheDelay) {
		cached, err := versions(ctx, r.cache, kind)
		if err != nil {
			return err
		}
		maps.DeleteFunc(missing, func(uid types.UID, version string) bool { return isShown(cached[uid], version) })
		if len(missing) == 0 {
			return nil
		}
		if err := pause(ctx, delay); err != nil {
			return err
		}
		live, err := versions(ctx, r.live, kind)
		if err != nil {
			return err
		}
		maps.DeleteFunc(missing, func(uid types.UID, _ string) bool { return live[uid] == "" })
	}
}

// isShown reports whether a resourceVersion of the cache is the wanted one, or newer; "" means that the cache has no
// such object.
func isShown(cached, wanted string) bool {
	if cached == "" || cached == wanted {
		return cached != ""
	}
	order, err := resourceversion.CompareResourceVersion(cached, wanted)
	return err == nil && order >= 0
}

// versions lists the objects of a kind, and returns their resourceVersions.
func versions(ctx context.Context, reader client.Reader, kind client.ObjectList) (map[types.UID]string, error) {
	list, _ := kind.DeepCopyObject().(client.ObjectList)
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	found := map[types.UID]string{}
	err := meta.EachListItem(list, func(item runtime.Object) error {
		o, err := meta.Accessor(item)
		if err == nil {
			found[o.GetUID()] = o.GetResourceVersion()
		}
		return err
	})
	return found, err
}

// list reads the assigned pods from the API server, in chunks of one consistent list. If that takes so long that the
// API server has compacted it, the list is Expired, and the next try reads another one.
func (r *Restorer) list(ctx context.Context) ([]*corev1.Pod, error) {
	var assigned []*corev1.Pod
	options := client.ListOptions{Limit: restoreChunk}
	client.MatchingFields{"spec.nodeName": r.node}.ApplyToList(&options)
	for {
		var chunk corev1.PodList
		if err := r.live.List(ctx, &chunk, &options); err != nil {
			return nil, err
		}
		assigned = append(assigned, assignedOf(&chunk)...)
		if options.Continue = chunk.Continue; options.Continue == "" {
			return assigned, nil
		}
	}
}

// namespaces returns the namespaces of consumers, by name. The account of a pod whose namespace the cache does not show
// yet is observed when the pod is reconciled.
func (r *Restorer) namespaces(ctx context.Context) (map[string]*corev1.Namespace, error) {
	var list corev1.NamespaceList
	if err := r.cache.List(ctx, &list, client.HasLabels{consts.RemoteClusterID}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	byName := make(map[string]*corev1.Namespace, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName, nil
}

// assignedOf returns the pods of a list that take capacity, or that were assigned before and are at no provider now:
// these count in the grant of their consumer.
func assignedOf(list *corev1.PodList) []*corev1.Pod {
	var assigned []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		moves := pod.Annotations[v1alpha1.AssignedAtAnnotation] != "" && !placement.Terminal(pod)
		if moves || placement.PlaceOf(pod) != (scheduler.Place{}) {
			assigned = append(assigned, pod)
		}
	}
	return assigned
}

// assignment is where a pod takes capacity, and whether it is leaving: a cache that shows no leaving pod shows all of
// its replicas available, and more of them would be moved.
type assignment struct {
	uid     types.UID
	at      scheduler.Place
	leaving bool
}

func assignmentOf(pod *corev1.Pod) assignment {
	return assignment{uid: pod.UID, at: placement.PlaceOf(pod), leaving: pod.Labels[v1alpha1.VirtualNodeLabel] == ""}
}
