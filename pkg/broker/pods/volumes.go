package pods

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
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

// assume decides about a pod. If no provider fits and its volumes may be recreated, it decides again as if they were
// nowhere.
func (c *Controller) assume(of *scheduler.Pod, policy *scheduler.Policy) scheduler.Decision {
	d := c.State.Assume(of, policy)
	if recreated := of.Volumes.Recreated(); d.VirtualNode == "" && d.Err == nil && d.Beyond == "" && recreated != nil {
		other := *of
		other.Volumes = recreated
		d = c.State.Assume(&other, policy)
	}
	return d
}

// bindVolumes writes on the pod's volumes that they are at the provider of a decision, before the pod is assigned there:
// the virtual kubelets of that provider make the claims. A volume that is elsewhere changes its provider only if the policy
// recreates it. The API server answers Conflict if a volume has changed since it was read: another pod of its claim was
// assigned.
func (c *Controller) bindVolumes(ctx context.Context, pod *corev1.Pod, volumes *scheduler.Volumes, provider string) error {
	if volumes == nil {
		return nil
	}
	for _, name := range placement.ClaimsOf(pod) {
		claim, volume, err := placement.Volume(ctx, c.Client, client.ObjectKey{Namespace: pod.Namespace, Name: name})
		if err != nil {
			return err
		}
		at := volume.Labels[v1alpha1.ProviderLabel]
		switch {
		case at == provider:
			continue
		case at != "" && !volumes.Recreate:
			return conflict(volume, fmt.Sprintf("it is at provider %s", at))
		}
		before := volume.DeepCopy()
		volume.Labels[v1alpha1.ProviderLabel] = provider // It has the VolumeLabel.
		delete(volume.Annotations, v1alpha1.MadeAtAnnotation)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := c.Client.Patch(ctx, volume, patch); err != nil {
			if kerrors.IsNotFound(err) {
				err = conflict(volume, "it was deleted")
			}
			return err
		}
		if at == "" {
			c.Events.Eventf(claim, corev1.EventTypeNormal, "VolumeAssigned", "The volume is made at provider %s", provider)
		} else {
			c.Events.Eventf(claim, corev1.EventTypeWarning, "VolumeRecreated",
				"A new, empty volume is made at provider %s; the one at %s is deleted (policy %s)", provider, at, "volumes: Recreate")
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
	if recreated := of.Volumes.Recreated(); recreated != nil {
		of.Volumes = recreated
	}
	if why == eviction.PendingTooLong { // It would be assigned there again.
		refused := map[string]time.Time{}
		maps.Copy(refused, of.Refused)
		refused[from.VirtualNode] = c.Clock.Now().Add(c.RefusalMemory + time.Minute)
		of.Refused = refused
	}
	return of
}

// isPinned reports whether no other provider can fit a pod whose provider is drained: its volumes are there.
func isPinned(pod *corev1.Pod, criteria *placement.Criteria) bool {
	v := criteria.Volumes
	return len(placement.ClaimsOf(pod)) > 0 && (v == nil || v.Provider != "" && !v.Recreate)
}

// staying describes why a pod stays where it is, by the reason for which it is to leave.
func staying(why eviction.Reason, virtualNode string) string {
	if why == eviction.Unreachable {
		return fmt.Sprintf("Staying at %s, whose provider is unreachable", virtualNode)
	}
	return fmt.Sprintf("Staying at %s, although %s", virtualNode, untrusted.Text(why.Describe(virtualNode)))
}
