package pods

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// claimsIndex finds the pods of a claim.
const claimsIndex = "volumes.claims"

func indexClaims(o client.Object) []string {
	if pod, ok := o.(*corev1.Pod); ok {
		return placement.ClaimsOf(pod)
	}
	return nil
}

// podsOfClaim returns requests for the pods that use a claim: they may wait for it.
func (c *Controller) podsOfClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return c.usersOf(ctx, claim.GetNamespace(), claim.GetName())
}

// podsOfVolume returns requests for the pods that use the claim of a PersistentVolume.
func (c *Controller) podsOfVolume(ctx context.Context, o client.Object) []reconcile.Request {
	if volume, ok := o.(*corev1.PersistentVolume); ok && volume.Spec.ClaimRef != nil {
		return c.usersOf(ctx, volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name)
	}
	return nil
}

func (c *Controller) usersOf(ctx context.Context, namespace, claim string) []reconcile.Request {
	var users corev1.PodList
	if err := c.Client.List(ctx, &users, client.InNamespace(namespace), client.MatchingFields{claimsIndex: claim}); err != nil {
		c.Log.Error(err, "Cannot list the pods of a claim", "namespace", namespace, "claim", claim)
		return nil
	}
	requests := make([]reconcile.Request, len(users.Items))
	for i := range users.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&users.Items[i])
	}
	return requests
}

// isLost reports whether a provider is gone, drained, or unreachable for as long as failover takes: as for its pods, not
// if the broker suspects itself, or has only begun to lead.
func (c *Controller) isLost(ctx context.Context, provider string, rules *placement.Rules) (bool, error) {
	virtualNode, err := c.Sibling(ctx, provider)
	if err != nil || virtualNode == "" {
		return err == nil, err
	}
	at, err := c.virtualNode(ctx, scheduler.Place{Provider: provider, VirtualNode: virtualNode})
	if err != nil {
		return false, err
	}
	out := !at.UnreachableSince.IsZero() && !at.MovesSuspended && rules.Failover != v1alpha1.FailoverNever &&
		c.Clock.Since(at.FailoverFrom) >= rules.FailoverAfter
	return at.Drained || at.Confirmed && out, nil
}

// Nowhere reports whether the volume of a claim may be made at another provider: it was not made, and no other pod is at
// its provider; or its provider is lost, and no other pod uses it. It is a placement.Policies' Nowhere.
func (c *Controller) Nowhere(ctx context.Context, pod *corev1.Pod, claim *placement.Claim, rules *placement.Rules) (bool, error) {
	made := claim.IsMade()
	if made {
		if lost, err := c.isLost(ctx, claim.Provider(), rules); err != nil || !lost {
			return false, err
		}
	}
	shared, err := c.sharesClaim(ctx, pod, claim.Name, !made)
	return !shared, err
}

// sharesClaim reports whether another pod uses a claim; with placed only pods count that may be at a provider.
func (c *Controller) sharesClaim(ctx context.Context, pod *corev1.Pod, claim string, placed bool) (bool, error) {
	var users corev1.PodList
	if err := c.Client.List(ctx, &users, client.InNamespace(pod.Namespace), client.MatchingFields{claimsIndex: claim}); err != nil {
		return false, err
	}
	for i := range users.Items {
		other := &users.Items[i]
		at := placement.PlaceOf(other) != (scheduler.Place{}) || c.State.Pod(other.UID).Assumed
		if other.UID != pod.UID && !placement.Terminal(other) && (at || !placed) {
			return true, nil
		}
	}
	return false, nil
}

// beginBinding returns a function that ends the binding of a pod's volumes, which no other pod does at the same time: each
// decision sees the pods that were assumed before it. Only a part of the workers waits for that; false means that the
// pod is tried later.
func (c *Controller) beginBinding(ctx context.Context, pod *corev1.Pod) (end func(), begun bool) {
	if len(placement.ClaimsOf(pod)) == 0 {
		return func() {}, true
	}
	select {
	case c.bindingWaits <- struct{}{}:
		defer func() { <-c.bindingWaits }()
	default:
		return nil, false
	}
	select {
	case c.binding <- struct{}{}:
		return sync.OnceFunc(func() { <-c.binding }), true
	case <-ctx.Done():
		return nil, false
	}
}

// bindVolumes writes on the pod's volumes that they are at the provider of a decision, before the pod is assigned there:
// the virtual kubelets of that provider make the claims. It answers Conflict, as the API server does, if a volume has
// changed since the decision read it.
func (c *Controller) bindVolumes(ctx context.Context, claims []placement.Claim, provider string) error {
	if err := c.checkVolumes(ctx, claims); err != nil {
		return err
	}
	for i := range claims {
		claim := &claims[i]
		at := claim.Provider()
		switch {
		case at == provider:
			continue
		case at != "" && !claim.Nowhere:
			return conflict(claim.Volume, "it is at provider "+at)
		}
		volume := claim.Volume.DeepCopy()
		volume.Labels[v1alpha1.ProviderLabel] = provider // It has the VolumeLabel.
		delete(volume.Annotations, v1alpha1.MadeAtAnnotation)
		delete(volume.Annotations, v1alpha1.MakingAtAnnotation)
		metav1.SetMetaDataAnnotation(&volume.ObjectMeta, v1alpha1.AssignedAtAnnotation, c.Clock.Now().UTC().Format(time.RFC3339Nano))
		if err := c.Client.Patch(ctx, volume, client.MergeFromWithOptions(claim.Volume, client.MergeFromWithOptimisticLock{})); err != nil {
			if kerrors.IsNotFound(err) {
				err = conflict(volume, "it was deleted")
			}
			return err
		}
		if !claim.IsMade() {
			c.Events.Eventf(claim.PersistentVolumeClaim, corev1.EventTypeNormal, "VolumeAssigned",
				"The volume is made at provider %s", provider)
		} else {
			c.Events.Eventf(claim.PersistentVolumeClaim, corev1.EventTypeWarning, "VolumeRecreated",
				"A new, empty volume is made at provider %s; the one at %s is deleted", provider, at)
		}
	}
	return nil
}

// checkVolumes asks the API server whether the volumes that were not made yet are as the decision read them, before the
// first one is written: the cache may not show that another pod took one.
func (c *Controller) checkVolumes(ctx context.Context, claims []placement.Claim) error {
	for i := range claims {
		claim := &claims[i]
		if claim.IsMade() {
			continue
		}
		var live corev1.PersistentVolume
		err := c.Live.Get(ctx, client.ObjectKeyFromObject(claim.Volume), &live)
		if kerrors.IsNotFound(err) || err == nil && live.ResourceVersion != claim.Volume.ResourceVersion {
			err = conflict(claim.Volume, "the cache lags")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// conflict has the pod reconciled again: the cache did not show the present state of a volume.
func conflict(volume *corev1.PersistentVolume, why string) error {
	return kerrors.NewConflict(schema.GroupResource{Resource: "persistentvolumes"}, volume.Name, fmt.Errorf("changed: %s", why))
}

// staysWithVolumes reports whether a pod that its provider could still run stays there unless another one fits: its
// volumes are there.
func staysWithVolumes(why eviction.Reason, pod *corev1.Pod) bool {
	return (why == eviction.Drained || why == eviction.PendingTooLong) && pod.DeletionTimestamp == nil && len(placement.ClaimsOf(pod)) > 0
}

// elsewhere returns a pod as it is decided about which is to leave its VirtualNode.
func (c *Controller) elsewhere(of *scheduler.Pod, from scheduler.Place, why eviction.Reason) *scheduler.Pod {
	if why == eviction.PendingTooLong { // It would be assigned there again.
		refused := map[string]time.Time{}
		maps.Copy(refused, of.Refused)
		refused[from.VirtualNode] = c.Clock.Now().Add(c.RefusalMemory + time.Minute)
		of.Refused = refused
	}
	return of
}

// isPinned reports whether no other provider can fit a pod that is to leave a provider: its volumes are there.
func isPinned(pod *corev1.Pod, criteria *placement.Criteria, from scheduler.Place) bool {
	v := criteria.Volumes
	return len(placement.ClaimsOf(pod)) > 0 && (v == nil || v.Provider == from.Provider)
}

// staying describes why a pod stays where it is, by the reason for which it is to leave.
func staying(why eviction.Reason, virtualNode string) string {
	if why == eviction.Unreachable {
		return fmt.Sprintf("Staying at %s, whose provider is unreachable", virtualNode)
	}
	return fmt.Sprintf("Staying at %s, although %s", virtualNode, untrusted.Text(why.Describe(virtualNode)))
}
