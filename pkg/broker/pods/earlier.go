package pods

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// unseenMargin is by how much the clocks of the broker and of the API server may differ.
const unseenMargin = 5 * time.Second

// removalTime is how long Liqo may take to remove the namespaces at a provider that answers, with pods that end
// gracefully.
const removalTime = 2 * time.Minute

// awaitEarlier returns how long a pod must wait before its first assignment because an earlier pod of its name may run
// at a provider: that pod was force-deleted, by kubectl, by the garbage collector of pods, or by Liqo for a Node that
// was not Ready. Its controller, such as a StatefulSet's, or Liqo's for the pods of consumers, has created the next one
// at once.
func (c *Controller) awaitEarlier(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	name := client.ObjectKeyFromObject(pod)
	earlier, known := c.State.Earlier(pod)
	if !known {
		return c.awaitUnseen(ctx, pod)
	}
	at, err := c.placeOf(ctx, pod, earlier.At)
	if err != nil {
		return 0, err
	}
	at.pod.UID, at.pod.Settled = "", true
	if earlier.Seen && at.known.UnreachableSince.IsZero() && at.mapped && at.pod.RemoteNamespace != "" {
		answer := c.Checker.Ask(at.pod)
		switch {
		case answer.Known && !answer.Present && !answer.Remaking:
			c.Checker.Forget(name)
			c.State.ForgetEarlier(name)
			return 0, nil
		case !answer.Known && answer.Err == nil:
			return leavingRecheck, nil
		}
	}
	return leavingRecheck, c.leaveEarlier(ctx, pod, &earlier)
}

// leaveEarlier marks a pod as leaving the place of the earlier pod of its name, as if it had been there: it is assigned
// nowhere else until the name no longer exists at that provider, also under the next leader.
func (c *Controller) leaveEarlier(ctx context.Context, pod *corev1.Pod, earlier *state.Earlier) error {
	from := earlier.At.VirtualNode
	err := c.write.Patch(ctx, pod, map[string]any{"annotations": map[string]any{
		v1alpha1.MovingFromAnnotation: from, v1alpha1.MovingFromProviderAnnotation: earlier.At.Provider,
		v1alpha1.DecisionAnnotation: "waits until the earlier pod of this name has ended at " + from,
	}})
	if err != nil {
		return err
	}
	c.Log.Info("Waiting until an earlier pod of the same name has ended", "pod", client.ObjectKeyFromObject(pod),
		"virtualNode", from, "earlierUID", earlier.UID)
	c.Events.Eventf(pod, corev1.EventTypeNormal, "EarlierPod",
		"Waiting until the earlier pod of this name has ended: it may still run at %s", from)
	return nil
}

// awaitUnseen is awaitEarlier for a pod about which this leader knows nothing. A pod that was created before this
// leader began, and that no leader has seen since, may have had an earlier one while no replica led: each provider that
// has its namespace is asked.
func (c *Controller) awaitUnseen(ctx context.Context, pod *corev1.Pod) (longest time.Duration, err error) {
	created := pod.CreationTimestamp
	seen := placement.Condition(pod, v1alpha1.ConditionAssigned) != nil || pod.Annotations[v1alpha1.AssignedAtAnnotation] != ""
	if seen || created.IsZero() || created.After(c.Restorer.LeadsSince().Add(unseenMargin)) || c.State.Pod(pod.UID).NameFree {
		return 0, nil
	}
	if known, err := c.knowsProviders(ctx); err != nil || !known {
		return c.recheck(), err
	}
	for _, at := range c.State.VirtualNodes() {
		if remote, known := c.State.RemoteNamespace(at, pod.Namespace); known && remote == "" {
			continue
		}
		wait, err := c.unseenDelay(ctx, pod, at)
		if err != nil {
			return 0, err
		}
		longest = max(longest, wait)
	}
	removal, err := c.removalDelay(ctx, pod)
	if err != nil {
		return 0, err
	}
	longest = max(longest, removal)
	if longest > 0 {
		return longest, nil
	}
	c.Checker.Forget(client.ObjectKeyFromObject(pod))
	c.State.ObserveNameFree(pod)
	return 0, nil
}

// removalDelay returns how long a pod must wait because its namespace is being removed at a provider, which may have an
// earlier pod of its name: Liqo drops the VirtualNodes of a peering as soon as it has requested to remove the
// namespaces there, and the NamespaceMap once they are gone (placeOf). The provider is not asked, because the new leader
// does not know the name of the VirtualNode. It counts as silent if it takes longer than removalTime.
func (c *Controller) removalDelay(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	var virtualNodes offloadingv1beta1.VirtualNodeList
	var maps offloadingv1beta1.NamespaceMapList
	for _, list := range []client.ObjectList{&virtualNodes, &maps} {
		if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return 0, err
		}
	}
	for i := range maps.Items {
		provider := placement.OffloadsTo(&maps.Items[i])
		peered := slices.ContainsFunc(virtualNodes.Items, func(vn offloadingv1beta1.VirtualNode) bool {
			return string(vn.Spec.ClusterID) == provider
		})
		if provider == "" || peered {
			continue
		}
		remote, err := c.RemoteNamespace(ctx, provider, pod.Namespace)
		if err != nil {
			return 0, err
		}
		if remote == "" {
			continue
		}
		wait, err := c.failoverDelay(ctx, pod, c.Restorer.LeadsSince().Add(removalTime), false)
		if err != nil || wait > 0 {
			return min(wait, leavingRecheck), err
		}
	}
	return 0, nil
}

// knowsProviders reports whether this leader knows all providers that had VirtualNodes under the previous one, or has
// had the time to.
func (c *Controller) knowsProviders(ctx context.Context) (bool, error) {
	if c.Clock.Since(c.Restorer.LeadsSince()) > v1alpha1.CreationDeadline {
		return true, nil
	}
	var all v1alpha1.ProviderClusterList
	if err := c.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	known := c.State.Providers()
	return !slices.ContainsFunc(all.Items, func(pc v1alpha1.ProviderCluster) bool {
		return len(pc.Status.VirtualNodes) > 0 && !slices.Contains(known, pc.Name)
	}), nil
}

// unseenDelay returns how long a pod must wait because one VirtualNode may have an earlier pod of its name.
func (c *Controller) unseenDelay(ctx context.Context, pod *corev1.Pod, from scheduler.Place) (time.Duration, error) {
	at, err := c.placeOf(ctx, pod, from)
	if err != nil {
		return 0, err
	}
	switch {
	case !at.known.Confirmed, at.known.MovesSuspended:
		return c.recheck(), nil // Whether it can be reached is known soon.
	case !at.known.UnreachableSince.IsZero():
		return c.failoverDelay(ctx, pod, at.known.FailoverFrom, false)
	case !at.mapped:
		return leavingRecheck, nil
	case at.pod.RemoteNamespace == "":
		return 0, nil
	}
	at.pod.UID, at.pod.Settled, at.pod.Orphan = "", true, false
	answer := c.Checker.Ask(at.pod)
	switch {
	case answer.Err != nil:
		return c.failoverDelay(ctx, pod, answer.Since, false)
	case !answer.Known:
		return leavingRecheck, nil
	case answer.Present || answer.Remaking:
		c.State.ObserveEarlier(at.pod.Name, from, answer.Status != nil && !answer.Remaking)
		return time.Millisecond, nil
	}
	return 0, nil
}

// recheck is when a provider has been probed again.
func (c *Controller) recheck() time.Duration { return max(c.ProbeInterval, time.Second) }
