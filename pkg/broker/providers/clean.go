package providers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

const (
	// cleanWorkers is how many providers are checked at once after an outage. One that is slow occupies a worker for one or two
	// timeouts of a request, then it is the turn of others.
	cleanWorkers = 64
	// maxDeleted is how many ShadowPods of VirtualNodes that are gone are deleted with one list.
	maxDeleted = 100
	// fewLeft is how many namespaces with pods that were moved away are listed every second. More are listed every ProbeInterval.
	fewLeft = 10
)

// cleaning is how far the check of a provider is. It is used by one worker at a time.
type cleaning struct {
	// moved is the number of Uncleaned for which it holds.
	moved int
	// cleaned are the namespaces, by local name, that have no pods which were moved away.
	cleaned sets.Set[string]
	// listed are the other namespaces that were listed since the last of them was: true means pods are left, false a refusal.
	listed map[string]bool
}

// setUpCleaning registers the controller that checks providers after an outage.
func (c *Controller) setUpCleaning(mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("cleaning").
		WatchesRawSource(c.cleans.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: cleanWorkers, SkipNameValidation: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return ctrl.Result{RequeueAfter: c.checkClean(ctx, r.Name)}, nil
		}))
	if err != nil {
		return fmt.Errorf("providers after an outage: %w", err)
	}
	return nil
}

// requestClean has a provider checked that was unreachable, and may still run pods that were moved away. It returns when to
// request it again; 0 if there is no need to.
func (c *Controller) requestClean(id string) time.Duration {
	if _, _, uncleaned := c.Belief.Uncleaned(id); !uncleaned {
		return 0
	}
	c.cleans.Add(types.NamespacedName{Name: id})
	return c.ProbeInterval // The first one may come before the queue has started.
}

// cleaningOf returns how far the check of a provider is. It begins again when more pods were moved away.
func (c *Controller) cleaningOf(id string, moved int) *cleaning {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.cleanings[id]
	if at == nil || at.moved != moved {
		at = &cleaning{moved: moved, cleaned: sets.New[string](), listed: map[string]bool{}}
		c.cleanings[id] = at
	}
	return at
}

// checkClean goes on to check whether a provider that was unreachable still runs pods that were moved away. It returns when to
// check again; 0 if there is no need to.
func (c *Controller) checkClean(ctx context.Context, id string) time.Duration {
	namespaces, moved, uncleaned := c.Belief.Uncleaned(id)
	if !uncleaned {
		return 0
	}
	in, err := c.cleanable(ctx, id)
	if err != nil || in.connection == nil {
		return c.ProbeInterval
	}
	at, began := c.cleaningOf(id, moved), time.Now()
	for _, local := range slices.Sorted(maps.Keys(namespaces)) {
		if _, listed := at.listed[local]; listed || at.cleaned.Has(local) {
			continue
		}
		if time.Since(began) >= c.RequestTimeout {
			return time.Millisecond // It goes on from here.
		}
		left, err := c.movedPodsLeft(ctx, in, local, namespaces[local])
		if err != nil {
			c.Log.Info("Cannot list the ShadowPods of a provider", "provider", id, "namespace", namespaces[local],
				"error", distrust.Text(err.Error()))
		}
		switch {
		case kerrors.IsForbidden(err) || kerrors.IsNotFound(err):
			at.listed[local] = false // Nothing can be created there either. One namespace does not keep the provider from all others.
		case err != nil:
			return c.ProbeInterval
		case left:
			at.listed[local] = true
		default:
			at.cleaned.Insert(local)
		}
	}
	return c.endClean(id, at, len(namespaces))
}

// endClean takes in that all namespaces were listed, and returns when to check again those that are not clean.
func (c *Controller) endClean(id string, at *cleaning, namespaces int) time.Duration {
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
		return c.ProbeInterval
	case left > 0:
		return time.Second
	}
	c.Log.Info("A provider that was unreachable has removed the pods that were moved away", "provider", id)
	c.Belief.ObserveClean(id, at.moved)
	c.mu.Lock()
	delete(c.cleanings, id)
	c.mu.Unlock()
	c.Queue.Add(types.NamespacedName{Name: id}) // Its reconciliation updates the scheduler.
	return time.Millisecond                     // Pods may have been moved away meanwhile.
}

// cleanable is what is needed to check a provider.
type cleanable struct {
	provider string
	// connection is that of its first VirtualNode that has one; nil if none has.
	connection *remote.Connection
	// virtualNodes are the names of those that the broker uses, others of those that it does not use.
	virtualNodes, others sets.Set[string]
	// origin is the id of this cluster, as its ResourceSlices have it; "" if it has none for the provider.
	origin string
}

func (c *Controller) cleanable(ctx context.Context, id string) (*cleanable, error) {
	in := &cleanable{provider: id, virtualNodes: sets.New[string]()}
	all, err := virtualNodesOf(ctx, c.Client, id)
	if err != nil {
		return nil, err
	}
	virtualNodes, _, err := c.virtualNodes(ctx, id)
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

// virtualNodesOf returns the names of all VirtualNodes of a provider, whether the broker uses them or not.
func virtualNodesOf(ctx context.Context, reader client.Reader, id string) (sets.Set[string], error) {
	var list offloadingv1beta1.VirtualNodeList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("VirtualNodes: %w", err)
	}
	names := sets.New[string]()
	for i := range list.Items {
		if vn := &list.Items[i]; string(vn.Spec.ClusterID) == id {
			names.Insert(vn.Name)
		}
	}
	return names, nil
}

// origin returns the id of this cluster, by which what it forwards is labelled. It is in the ResourceSlices in the tenant namespace
// of a provider, where no other cluster writes.
func (c *Controller) origin(ctx context.Context, id string) (string, error) {
	var list authv1beta1.ResourceSliceList
	if err := c.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	var asked []*authv1beta1.ResourceSlice
	for i := range list.Items {
		if slice := &list.Items[i]; askedOf(slice) == id && ptr.Deref(slice.Spec.ConsumerClusterID, "") != "" {
			asked = append(asked, slice)
		}
	}
	asked, err := inTenantOf(ctx, c.Client, id, asked)
	if err != nil || len(asked) == 0 {
		return "", err
	}
	return string(*asked[0].Spec.ConsumerClusterID), nil
}

// mayHaveLeft reports whether a VirtualNode that is gone may have left a ShadowPod: it is of this cluster, and of no other VirtualNode.
func (in *cleanable) mayHaveLeft(shadow *remote.ShadowPod) bool {
	return shadow.NodeName != "" && !in.others.Has(shadow.NodeName) && (in.origin == "" || shadow.Origin == in.origin)
}

// movedPodsLeft reports whether a remote namespace has ShadowPods whose pods are not assigned to their VirtualNode. No virtual
// kubelet deletes those of a VirtualNode that is gone, so they are deleted here.
func (c *Controller) movedPodsLeft(ctx context.Context, in *cleanable, local, remoteName string) (left bool, err error) {
	listing, cancel := context.WithTimeout(ctx, c.RequestTimeout)
	defer cancel()
	var orphans []remote.ShadowPod
	gone := false
	err = in.connection.ShadowPods(listing, remoteName, func(shadow *remote.ShadowPod) {
		own := in.virtualNodes.Has(shadow.NodeName)
		if !own && !in.mayHaveLeft(shadow) {
			return
		}
		var pod corev1.Pod
		found := c.Client.Get(ctx, types.NamespacedName{Namespace: local, Name: shadow.Name}, &pod)
		at := scheduler.Place{Provider: in.provider, VirtualNode: shadow.NodeName}
		switch {
		case found == nil && placement.AssignedTo(&pod) == at:
		case own:
			left = true
		case found == nil && placement.MovingFrom(&pod) == at:
			gone = true // The provider is asked about it, and then it is deleted (pkg/broker/leaving).
		case len(orphans) < maxDeleted && in.origin != "" && (found == nil || kerrors.IsNotFound(found)):
			orphans = append(orphans, *shadow)
		default:
			gone = true
		}
	})
	if err != nil || len(orphans) == 0 {
		return left || gone, err
	}
	others, err := c.deleteOrphans(ctx, in, remoteName, orphans)
	return left || gone || others, err
}

// deleteOrphans deletes those ShadowPods whose VirtualNode is gone, and reports whether there are any. The VirtualNodes are read
// from the API server, after the ShadowPods: one that made a ShadowPod is among them, also one that the broker does not use.
func (c *Controller) deleteOrphans(ctx context.Context, in *cleanable, remoteName string, shadows []remote.ShadowPod) (orphans bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.RequestTimeout)
	defer cancel()
	there, err := virtualNodesOf(ctx, c.Live, in.provider)
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
				"virtualNode", distrust.Text(shadow.NodeName), "error", distrust.Text(err.Error()))
			return true, nil // The next check tries again.
		}
	}
	return orphans, nil
}
