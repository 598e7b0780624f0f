package pods

import (
	"context"
	"fmt"
	"maps"
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

// volumesFor returns the volumes of a pod for its decision. Those that its policy may recreate count as nowhere if their
// provider is lost, and no other pod uses them.
func (c *Controller) volumesFor(ctx context.Context, pod *corev1.Pod, criteria *placement.Criteria) (*scheduler.Volumes, error) {
	recreated := criteria.Volumes.Recreated()
	if recreated == nil {
		return criteria.Volumes, nil
	}
	lost, err := c.isLost(ctx, criteria.Volumes.Provider, &criteria.Rules)
	if err != nil || !lost && !criteria.Volumes.Split {
		return criteria.Volumes, err
	}
	if shared, err := c.sharesClaims(ctx, pod, criteria.Claims, false); err != nil || shared {
		return criteria.Volumes, err
	}
	return recreated, nil
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

// Unused reports whether no other pod is, or will be, at the provider of a claim. It is a placement.Policies' Unused.
func (c *Controller) Unused(ctx context.Context, pod *corev1.Pod, claim *placement.Claim) (bool, error) {
	shared, err := c.sharesClaims(ctx, pod, []placement.Claim{*claim}, true)
	return !shared, err
}

// sharesClaims reports whether another pod uses one of the claims; with placed only pods count that may be at a provider.
func (c *Controller) sharesClaims(ctx context.Context, pod *corev1.Pod, claims []placement.Claim, placed bool) (bool, error) {
	for i := range claims {
		var users corev1.PodList
		err := c.Client.List(ctx, &users, client.InNamespace(pod.Namespace), client.MatchingFields{claimsIndex: claims[i].Name})
		if err != nil {
			return false, err
		}
		for k := range users.Items {
			other := &users.Items[k]
			at := placement.PlaceOf(other) != (scheduler.Place{}) || c.State.Pod(other.UID).Assumed
			if other.UID != pod.UID && !placement.Terminal(other) && (at || !placed) {
				return true, nil
			}
		}
	}
	return false, nil
}

// bindVolumes writes on the pod's volumes that they are at the provider of a decision, before the pod is assigned there:
// the virtual kubelets of that provider make the claims. The API server answers Conflict if a volume has changed since
// the decision read it: another pod of its claim was assigned. The caller holds binding.
func (c *Controller) bindVolumes(ctx context.Context, pod *corev1.Pod, claims []placement.Claim, decided *scheduler.Volumes, provider string) error {
	for i := range claims {
		claim := &claims[i]
		at := claim.Provider()
		if at == provider {
			if err := c.checkBound(ctx, claim); err != nil {
				return err
			}
			continue
		}
		if at != "" {
			if err := c.mayRebind(ctx, pod, claim, decided); err != nil {
				return err
			}
		}
		volume := claim.Volume.DeepCopy()
		volume.Labels[v1alpha1.ProviderLabel] = provider // It has the VolumeLabel.
		delete(volume.Annotations, v1alpha1.MadeAtAnnotation)
		metav1.SetMetaDataAnnotation(&volume.ObjectMeta, v1alpha1.AssignedAtAnnotation, c.Clock.Now().UTC().Format(time.RFC3339Nano))
		if err := c.Client.Patch(ctx, volume, client.MergeFromWithOptions(claim.Volume, client.MergeFromWithOptimisticLock{})); err != nil {
			if kerrors.IsNotFound(err) {
				err = conflict(volume, "it was deleted")
			}
			return err
		}
		if at == "" || !claim.IsMade() {
			c.Events.Eventf(claim.PersistentVolumeClaim, corev1.EventTypeNormal, "VolumeAssigned", "The volume is made at provider %s", provider)
		} else {
			c.Events.Eventf(claim.PersistentVolumeClaim, corev1.EventTypeWarning, "VolumeRecreated",
				"A new, empty volume is made at provider %s; the one at %s is deleted", provider, at)
		}
	}
	return nil
}

// checkBound asks the API server whether a volume that was not made yet is still at its provider: the cache may not show
// that another pod took it.
func (c *Controller) checkBound(ctx context.Context, claim *placement.Claim) error {
	if claim.IsMade() {
		return nil
	}
	var live corev1.PersistentVolume
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(claim.Volume), &live); err != nil {
		return err
	}
	if live.UID != claim.Volume.UID || live.Labels[v1alpha1.ProviderLabel] != claim.Provider() {
		return conflict(claim.Volume, "it is at another provider")
	}
	return nil
}

// mayRebind returns an error if the volume of a claim must not be assigned to another provider: it may if the decision
// recreates it, or if it was not made yet and no other pod is there.
func (c *Controller) mayRebind(ctx context.Context, pod *corev1.Pod, claim *placement.Claim, decided *scheduler.Volumes) error {
	if decided.Provider == "" && decided.Recreate {
		return nil
	}
	unused, err := c.Unused(ctx, pod, claim)
	if err == nil && (claim.IsMade() || !unused) {
		err = conflict(claim.Volume, "it is at provider "+claim.Provider())
	}
	return err
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
func (c *Controller) elsewhere(ctx context.Context, pod *corev1.Pod, namespace *corev1.Namespace, criteria *placement.Criteria,
	from scheduler.Place, why eviction.Reason,
) (*scheduler.Pod, error) {
	of := criteria.Pod(pod, namespace)
	var err error
	if of.Volumes, err = c.volumesFor(ctx, pod, criteria); err != nil {
		return nil, err
	}
	if why == eviction.PendingTooLong { // It would be assigned there again.
		refused := map[string]time.Time{}
		maps.Copy(refused, of.Refused)
		refused[from.VirtualNode] = c.Clock.Now().Add(c.RefusalMemory + time.Minute)
		of.Refused = refused
	}
	return of, nil
}

// isPinned reports whether no other provider can fit a pod that is to leave a provider: its volumes are there.
func isPinned(pod *corev1.Pod, criteria *placement.Criteria, from scheduler.Place) bool {
	v := criteria.Volumes
	return len(placement.ClaimsOf(pod)) > 0 && (v == nil || v.Provider == from.Provider && !v.Recreate)
}

// staying describes why a pod stays where it is, by the reason for which it is to leave.
func staying(why eviction.Reason, virtualNode string) string {
	if why == eviction.Unreachable {
		return fmt.Sprintf("Staying at %s, whose provider is unreachable", virtualNode)
	}
	return fmt.Sprintf("Staying at %s, although %s", virtualNode, untrusted.Text(why.Describe(virtualNode)))
}
