package termination

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

const (
	// cleanWorkers is how many providers are checked at once after an outage. A slow provider occupies a worker for one
	// or two timeouts of a request, then others are checked.
	cleanWorkers = 64
	// maxDeleted is how many ShadowPods of VirtualNodes that are gone are deleted with one list.
	maxDeleted = 100
	// fewLeft is how many namespaces with pods that were moved away are listed every second. More are listed every
	// Interval.
	fewLeft = 10
)

// CleanerConfig is everything that the controller needs.
type CleanerConfig struct {
	Log logr.Logger
	// Client reads from the cache; Live reads VirtualNodes from the API server.
	Client client.Client
	Live   client.Reader

	State       *state.Federation
	Connections *remote.Connections
	// Providers requeues a provider that has removed all pods that were moved away.
	Providers *requeue.Queue
	// Selector selects VirtualNodes by their labels.
	Selector labels.Selector
	// Interval is the time between two checks of a provider that does not answer, or has many namespaces left;
	// RequestTimeout bounds one request.
	Interval, RequestTimeout time.Duration
}

// Cleaner checks the providers that are requested, until they have removed all pods that were moved away.
type Cleaner struct {
	CleanerConfig

	queue requeue.Queue

	mu sync.Mutex
	// checks are those that have begun, by provider; guarded by mu.
	checks map[string]*check
}

// NewCleaner returns a Cleaner, which does nothing before SetUp.
func NewCleaner(cfg CleanerConfig) *Cleaner {
	return &Cleaner{CleanerConfig: cfg, checks: map[string]*check{}}
}

// check is the progress of a provider's check. It is used by one worker at a time.
type check struct {
	// moved is the state.Provider.Moved for which it holds.
	moved int
	// cleaned are the namespaces, by local name, that have no pods which were moved away.
	cleaned sets.Set[string]
	// listed are the other namespaces that were listed since the last of them was: true means pods are left, false a
	// refusal.
	listed map[string]bool
	// lists are those that have begun and not ended, by local name.
	lists map[string]*list
}

// list is how far the ShadowPods of a namespace were read, and whether some were left that must not exist there.
type list struct {
	at   untrusted.Progress
	left bool
}

// SetUp registers the controller with the manager; it runs on the leader.
func (c *Cleaner) SetUp(mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("leftovers").
		WatchesRawSource(c.queue.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: cleanWorkers, SkipNameValidation: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return ctrl.Result{RequeueAfter: c.reconcile(ctx, r.Name)}, nil
		}))
	if err != nil {
		return fmt.Errorf("cleaner: %w", err)
	}
	return nil
}

// Request has a provider checked that was unreachable, and may still run pods that were moved away. It returns when to
// request it again; 0 if there is no need to.
func (c *Cleaner) Request(id string) time.Duration {
	if _, unclean := c.unclean(id); !unclean {
		return 0
	}
	c.queue.Add(types.NamespacedName{Name: id})
	return c.Interval // The first one may come before the queue has started.
}

// unclean returns the state of a provider that may still run pods which were moved away, and can be asked; false if it
// need not be checked.
func (c *Cleaner) unclean(id string) (state.Provider, bool) {
	known, _ := c.State.Provider(id)
	return known, known.Unclean && known.Answers
}

// Forget forgets the progress of a provider's check; the provider has no VirtualNodes any more, or is clean.
func (c *Cleaner) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.checks, id)
}

// checkOf returns the progress of a provider's check. It begins again when more pods were moved away.
func (c *Cleaner) checkOf(id string, moved int) *check {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.checks[id]
	if at == nil || at.moved != moved {
		at = &check{moved: moved, cleaned: sets.New[string](), listed: map[string]bool{}, lists: map[string]*list{}}
		c.checks[id] = at
	}
	return at
}

// reconcile continues the check whether a provider that was unreachable still runs pods that were moved away. It
// returns when to check again; 0 if there is no need to.
func (c *Cleaner) reconcile(ctx context.Context, id string) time.Duration {
	known, unclean := c.unclean(id)
	if !unclean {
		return 0
	}
	namespaces := known.RemoteNamespaces
	in, err := c.cleanable(ctx, id)
	if err != nil || in.connection == nil {
		return c.Interval
	}
	at, began := c.checkOf(id, known.Moved), time.Now()
	for _, local := range slices.Sorted(maps.Keys(namespaces)) {
		if _, listed := at.listed[local]; listed || at.cleaned.Has(local) {
			continue
		}
		if time.Since(began) >= c.RequestTimeout {
			return time.Millisecond // It goes on from here.
		}
		if at.lists[local] == nil {
			at.lists[local] = &list{}
		}
		done, err := c.readShadowPods(ctx, in, local, namespaces[local], at.lists[local], began.Add(c.RequestTimeout))
		if err != nil {
			c.Log.Info("Cannot list the ShadowPods of a provider", "provider", id, "namespace", namespaces[local],
				"error", untrusted.Text(err.Error()))
		}
		switch {
		case kerrors.IsForbidden(err) || kerrors.IsNotFound(err):
			at.listed[local] = false // Nothing can be created there either. One namespace does not keep the provider from all others.
		case err != nil:
			return c.Interval
		case !done:
			return time.Millisecond
		case at.lists[local].left:
			at.listed[local] = true
		default:
			at.cleaned.Insert(local)
		}
		delete(at.lists, local)
	}
	return c.endTurn(id, at, len(namespaces))
}

// endTurn records that all namespaces were listed, and returns when to check again those that are not clean.
func (c *Cleaner) endTurn(id string, at *check, namespaces int) time.Duration {
	left := 0
	for _, has := range at.listed {
		if has {
			left++
		}
	}
	refusals := len(at.listed) - left
	clear(at.listed)
	switch {
	case left > fewLeft || refusals > 0 && refusals == namespaces:
		return c.Interval
	case left > 0:
		return time.Second
	}
	c.Log.Info("Provider has removed the pods that were moved away while it was unreachable", "provider", id)
	c.State.ObserveClean(id, at.moved)
	c.Forget(id)
	c.Providers.Add(types.NamespacedName{Name: id}) // Its reconciliation updates the scheduler.
	return time.Millisecond                         // Pods may have been moved away meanwhile.
}

// cleanable has the data needed to check a provider.
type cleanable struct {
	provider string
	// connection is the connection of its first VirtualNode that has one; nil if none has.
	connection *remote.Connection
	// virtualNodes are the names of those that the broker uses, others of those that it does not use.
	virtualNodes, others sets.Set[string]
	// origin is the id of this cluster, as its ResourceSlices have it; "" if it has none for the provider.
	origin string
}

func (c *Cleaner) cleanable(ctx context.Context, id string) (*cleanable, error) {
	in := &cleanable{provider: id, virtualNodes: sets.New[string]()}
	all, err := peering.VirtualNodeNames(ctx, c.Client, id)
	if err != nil {
		return nil, err
	}
	virtualNodes, _, err := peering.VirtualNodes(ctx, c.Client, c.Selector, id)
	if err != nil {
		return nil, err
	}
	for _, vn := range virtualNodes {
		in.virtualNodes.Insert(vn.Name)
		if in.connection == nil {
			in.connection = c.Connections.Get(remote.PlaceOf(vn))
		}
	}
	in.others = all.Difference(in.virtualNodes)
	in.origin, err = c.origin(ctx, id)
	return in, err
}

// origin returns the id of this cluster, with which its forwarded objects are labelled. It is in the ResourceSlices
// that this cluster sends to a provider.
func (c *Cleaner) origin(ctx context.Context, id string) (string, error) {
	asked, err := peering.ResourceSlices(ctx, c.Client, id)
	if err != nil {
		return "", err
	}
	for _, slice := range asked {
		if origin := ptr.Deref(slice.Spec.ConsumerClusterID, ""); origin != "" {
			return string(origin), nil
		}
	}
	return "", nil
}

// mayHaveLeft reports whether a VirtualNode that is gone may have left a ShadowPod: it is of this cluster, and of no
// other VirtualNode.
func (in *cleanable) mayHaveLeft(shadow *remote.ShadowPod) bool {
	return shadow.NodeName != "" && !in.others.Has(shadow.NodeName) && (in.origin == "" || shadow.Origin == in.origin)
}

// readShadowPods reads the ShadowPods of a remote namespace from where an attempt ended, until a time, and reports
// whether that was all. It records whether there are any whose pods are not assigned to their VirtualNode. If their
// VirtualNode is gone, no virtual kubelet deletes them, so they are deleted here.
func (c *Cleaner) readShadowPods(
	ctx context.Context, in *cleanable, local, remoteName string, of *list, until time.Time,
) (done bool, err error) {
	for first := true; !done; first = false {
		if !first && !time.Now().Before(until) || ctx.Err() != nil {
			return false, nil
		}
		var orphans []remote.ShadowPod
		reading, cancel := context.WithTimeout(ctx, c.RequestTimeout)
		done, err = in.connection.ShadowPods(reading, remoteName, &of.at, func(shadow *remote.ShadowPod) {
			left, orphan := c.leftBy(ctx, in, local, shadow)
			of.left = of.left || left
			if orphan && len(orphans) < maxDeleted {
				orphans = append(orphans, *shadow)
			} else if orphan {
				of.left = true
			}
		})
		cancel()
		if err != nil || len(orphans) == 0 {
			if err != nil {
				return false, err
			}
			continue
		}
		others, err := c.deleteOrphans(ctx, in, remoteName, orphans)
		if of.left = of.left || others; err != nil {
			of.left = true
			return false, err
		}
	}
	return true, nil
}

// leftBy reports whether a ShadowPod must not exist any more, and whether its VirtualNode may be gone, so that it is to
// be deleted here.
func (c *Cleaner) leftBy(ctx context.Context, in *cleanable, local string, shadow *remote.ShadowPod) (left, orphan bool) {
	own := in.virtualNodes.Has(shadow.NodeName)
	if !own && !in.mayHaveLeft(shadow) {
		return false, false
	}
	var pod corev1.Pod
	found := c.Client.Get(ctx, types.NamespacedName{Namespace: local, Name: shadow.Name}, &pod)
	at := scheduler.Place{Provider: in.provider, VirtualNode: shadow.NodeName}
	switch {
	case found == nil && placement.AssignedTo(&pod) == at:
		return false, false
	case own:
		return true, false
	case found == nil && placement.MovingFrom(&pod) == at:
		return true, false // The provider is asked about it, and then it is deleted (pkg/broker/termination).
	case in.origin != "" && (found == nil || kerrors.IsNotFound(found)):
		return false, true
	}
	return true, false
}

// deleteOrphans deletes the ShadowPods whose VirtualNode is gone, and reports whether there were any. The VirtualNodes
// are read from the API server, after the ShadowPods: so every VirtualNode that made one of them is included, even if
// the broker does not use it.
func (c *Cleaner) deleteOrphans(
	ctx context.Context, in *cleanable, remoteName string, shadows []remote.ShadowPod,
) (orphans bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.RequestTimeout)
	defer cancel()
	there, err := peering.VirtualNodeNames(ctx, c.Live, in.provider)
	if err != nil {
		return false, err
	}
	for _, shadow := range shadows {
		if there.Has(shadow.NodeName) {
			continue // Its virtual kubelet deletes it. The next check has it, if the broker uses it.
		}
		orphans = true
		if err := in.connection.DeleteShadowPod(ctx, remoteName, shadow.Name, shadow.UID); err != nil {
			c.Log.Info("Cannot delete the ShadowPod of a VirtualNode that is gone", "provider", in.provider, "namespace", remoteName,
				"virtualNode", untrusted.Text(shadow.NodeName), "error", untrusted.Text(err.Error()))
			return true, nil // The next check tries again.
		}
	}
	return orphans, nil
}
