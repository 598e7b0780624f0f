package pods

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
)

// The backoff between two checks whether a provider has removed a pod.
const (
	firstGoneCheck = 200 * time.Millisecond
	lastGoneCheck  = 5 * time.Second
)

// evict begins a move: the pod leaves its Services, and loses the label by which its virtual kubelet selects it.
func (c *Controller) evict(ctx context.Context, pod *corev1.Pod, virtualNode string, why reason) error {
	description := why.describe(virtualNode)
	by, isRefused := refusal.Of(pod) // By the label, which is removed.
	quotaExceeded := why == refused && isRefused && by.Reason == refusal.QuotaExceeded
	if placement.Ready(pod) {
		if err := c.patchCondition(ctx, pod, notReady("Moving", description)); err != nil {
			return err
		}
	}
	err := c.patchPod(ctx, pod, map[string]any{
		"labels": map[string]any{v1alpha1.VirtualNodeLabel: nil, v1alpha1.ProviderLabel: nil},
		"annotations": map[string]any{
			v1alpha1.MovingFromAnnotation: virtualNode, v1alpha1.DecisionAnnotation: "moving: " + description,
			v1alpha1.MovingFromProviderAnnotation: pod.Labels[v1alpha1.ProviderLabel],
		},
	})
	if err != nil {
		return err
	}
	c.Log.Info("Moving a pod", "pod", client.ObjectKeyFromObject(pod), "from", virtualNode, "reason", description)
	c.Events.Eventf(pod, corev1.EventTypeWarning, "Moving", "Moving away from %s: %s", virtualNode, description)
	c.Metrics.moves.WithLabelValues(string(why)).Inc()
	c.requeueUnclean(c.Belief.ObserveEvicted(pod, virtualNode))
	if why == refused || why == pendingTooLong {
		c.Belief.ObserveRefused(pod, belief.Refusal{
			VirtualNode: virtualNode, Reason: belief.RefusalReason(why), Until: c.Clock.Now().Add(c.RefusalMemory),
			LacksRoom: quotaExceeded,
		})
	}
	return nil
}

// release waits until the provider that a moving pod leaves has removed it, and assigns the pod again. A provider that
// cannot be reached is not waited for: then the pod may run twice until it is back, which is what failover means.
func (c *Controller) release(ctx context.Context, pod *corev1.Pod, from string) (ctrl.Result, error) {
	at, err := c.virtualNode(ctx, from)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := c.clearStatus(ctx, pod, from); err != nil {
		return ctrl.Result{}, err
	}
	c.Belief.ObserveAssigned(pod, from) // It takes room there until it has left.
	wait, err := c.releaseDelay(ctx, pod, from, pod.Annotations[v1alpha1.MovingFromProviderAnnotation], at)
	if err != nil || wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, err
	}
	if err := c.forgetAddress(ctx, pod); err != nil {
		return ctrl.Result{}, err
	}
	c.Belief.ObserveLeft(pod, from)
	c.Requeue.Unassigned()
	if pod.DeletionTimestamp != nil {
		return ctrl.Result{}, c.finalize(ctx, pod)
	}
	return c.assign(ctx, pod)
}

// releaseDelay returns how long a pod must wait until it is checked again; 0 when nothing of it is at a VirtualNode any
// more, or its provider is not waited for. If the VirtualNode is gone, another one of the same provider is used to ask.
func (c *Controller) releaseDelay(ctx context.Context, pod *corev1.Pod, from, provider string, at belief.VirtualNode,
) (time.Duration, error) {
	via := from
	if !at.Known {
		c.Belief.ObserveFormerProvider(from, provider)
		sibling, err := c.siblingOf(ctx, from)
		if err != nil {
			return 0, err
		}
		via, at = sibling, c.Belief.VirtualNode(sibling)
	}
	wait, err := c.overlapDelay(ctx, pod, from, via, at)
	if err != nil || wait > 0 {
		return wait, err
	}
	if !at.UnreachableSince.IsZero() {
		c.requeueUnclean(c.Belief.ObserveGivenUp(via))
	}
	c.goneChecks.Forget(client.ObjectKeyFromObject(pod))
	return 0, nil
}

// siblingOf returns another VirtualNode of the provider of one that is gone; "" if there is none.
func (c *Controller) siblingOf(ctx context.Context, gone string) (string, error) {
	provider := c.Belief.FormerProviderOf(gone)
	if provider == "" {
		return "", nil
	}
	return c.Sibling(ctx, provider)
}

// requeueUnclean has it written soon that a provider may run what it must not, for the next leader; "" is none.
func (c *Controller) requeueUnclean(provider string) {
	if provider != "" {
		c.Providers.Add(types.NamespacedName{Name: provider})
	}
}

// overlapDelay returns how long a pod must wait before it may run elsewhere; 0 when its old provider has removed it, or has
// been unreachable for so long that the pod may run twice. Without a VirtualNode to ask, Liqo has removed the namespaces of
// the provider with everything in them.
func (c *Controller) overlapDelay(ctx context.Context, pod *corev1.Pod, from, via string, at belief.VirtualNode) (time.Duration, error) {
	if via == "" {
		return 0, nil
	}
	if at.UnreachableSince.IsZero() {
		return c.removalDelay(ctx, pod, from, via), nil
	}
	criteria, _, err := c.criteriaOf(ctx, pod)
	if err != nil && !errors.Is(err, placement.ErrInvalid) {
		return 0, err
	}
	if criteria.Rules.Failover == v1alpha1.FailoverNever || at.MovesSuspended {
		return c.ProbeInterval, nil
	}
	return max(0, criteria.Rules.FailoverAfter-c.Clock.Since(at.FailoverFrom)), nil
}

// removalDelay asks a provider whether it has removed a pod, and returns how long to wait before the next time; 0 if it
// has. The ShadowPod of a VirtualNode that is gone is deleted.
func (c *Controller) removalDelay(ctx context.Context, pod *corev1.Pod, from, via string) time.Duration {
	namespace, known := c.Belief.RemoteNamespace(via, pod.Namespace)
	connection := c.Connections.Get(via)
	switch {
	case !known || connection == nil:
		return lastGoneCheck // That is not known yet.
	case namespace == "":
		return 0 // The namespace is not mapped any more: Liqo has removed it with everything in it.
	}
	// One provider must not occupy a worker for long.
	ctx, cancel := context.WithTimeout(ctx, c.ProbeTimeout)
	defer cancel()
	err := checkRemoved(ctx, connection, pod.Name, namespace, from, via)
	switch {
	case err == nil:
		return 0
	case !errors.Is(err, remote.ErrStillThere):
		c.Log.Info("Cannot check whether a provider has removed a pod",
			"pod", client.ObjectKeyFromObject(pod), "from", from, "error", err.Error())
	}
	return c.goneChecks.When(client.ObjectKeyFromObject(pod))
}

func checkRemoved(ctx context.Context, connection *remote.Connection, pod, namespace, from, via string) error {
	if via != from {
		if err := connection.DeleteShadowPod(ctx, from, namespace, pod); err != nil {
			return err
		}
	}
	return connection.CheckGone(ctx, from, namespace, pod)
}

// clearedByLeaving removes the annotations that hold no more once a pod has left its provider. Where it ran stays written
// until then: its address is removed first (clearStatus), so that the two are never of different providers.
func clearedByLeaving() map[string]any {
	annotations := map[string]any{v1alpha1.MovingFromAnnotation: nil, v1alpha1.MovingFromProviderAnnotation: nil}
	for _, key := range v1alpha1.RootAnnotations() {
		annotations[key] = nil
	}
	return annotations
}

// clearStatus removes what the last virtual kubelet reported from a pod that leaves it. Liqo would map the old address
// again as soon as its IP object is deleted, and never the next one.
func (c *Controller) clearStatus(ctx context.Context, pod *corev1.Pod, from string) error {
	if pod.Status.Phase == corev1.PodPending && pod.Status.PodIP == "" {
		return nil
	}
	// The API server accepts no running container that has terminated before, so their statuses go, too. A pod that does
	// not start at the next provider is then Pending there.
	return c.patchStatus(ctx, pod, map[string]any{
		"phase": corev1.PodPending, "podIP": nil, "podIPs": nil,
		"containerStatuses": nil, "initContainerStatuses": nil, "ephemeralContainerStatuses": nil,
		"conditions": []corev1.PodCondition{c.timed(notReady("Moving", "leaving "+from))},
	})
}

// finalize ends a pod that is being deleted and runs nowhere.
func (c *Controller) finalize(ctx context.Context, pod *corev1.Pod) error {
	return client.IgnoreNotFound(c.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
}

// finalizeOrphan ends a terminal pod that is being deleted and has no virtual kubelet that would do so.
func (c *Controller) finalizeOrphan(ctx context.Context, pod *corev1.Pod, virtualNode string) (ctrl.Result, error) {
	if pod.DeletionTimestamp == nil {
		return ctrl.Result{}, nil
	}
	if virtualNode != "" {
		at, err := c.virtualNode(ctx, virtualNode)
		if err != nil || at.Known {
			return ctrl.Result{}, err
		}
		wait, err := c.releaseDelay(ctx, pod, virtualNode, pod.Labels[v1alpha1.ProviderLabel], at)
		if err != nil || wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, err
		}
	}
	return ctrl.Result{}, c.finalize(ctx, pod)
}
