package broker

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/tracing"
)

// reconcilePod brings one pod of the broker's node a step further. It reads what is so from the API, never from what
// woke it, so that it can be called at any time and after any restart:
//
//	unassigned → assigned → (must leave) → leaving → unassigned → …
func (b *Broker) reconcilePod(ctx context.Context, name types.NamespacedName) (ctrl.Result, error) {
	if err := b.recall(ctx); err != nil {
		return ctrl.Result{}, err
	}
	result, err := b.step(ctx, name)
	if kerrors.IsConflict(err) {
		// The pod has changed since it was read; nothing was written.
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	return result, client.IgnoreNotFound(err)
}

// conflictPause is how long the cache may take to show what is new.
const conflictPause = 20 * time.Millisecond

func (b *Broker) step(ctx context.Context, name types.NamespacedName) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := b.client.Get(ctx, name, &pod); err != nil {
		if kerrors.IsNotFound(err) {
			b.free(name, "")
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	virtualNode, leaving := pod.Labels[v1alpha1.VirtualNodeLabel], pod.Annotations[v1alpha1.MovingFromAnnotation]
	switch {
	case placement.Terminal(&pod):
		b.free(name, pod.UID)
		return b.finalizeOrphan(ctx, &pod, virtualNode)
	case virtualNode != "":
		return b.keep(ctx, &pod, virtualNode)
	}
	if assumed, doubted := b.core.isAssumed(pod.UID); doubted {
		return ctrl.Result{}, b.settleDoubt(ctx, &pod)
	} else if assumed {
		// Assigned a moment ago; the cache will say so.
		return ctrl.Result{}, nil
	}
	switch {
	case leaving != "" && !b.core.leftFor(pod.UID, leaving):
		return b.letGo(ctx, &pod, leaving)
	case pod.DeletionTimestamp != nil:
		return ctrl.Result{}, b.finalize(ctx, &pod)
	default:
		return b.assign(ctx, &pod)
	}
}

// recall counts, once, the room that all assigned pods take, before the first decision is made. With it this broker begins
// to lead: its process may have stood by for days.
func (b *Broker) recall(ctx context.Context) error {
	b.recalling.Lock()
	defer b.recalling.Unlock()
	if b.recalled {
		return nil
	}
	var pods corev1.PodList
	if err := b.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if at := placement.PlaceOf(pod); at != "" && !placement.Terminal(pod) {
			b.core.assigned(pod, at)
		}
	}
	b.recalled, b.since = true, b.now()
	return nil
}

// free gives back the room of a pod that needs none any more, to those that wait.
func (b *Broker) free(name types.NamespacedName, uid types.UID) {
	if b.core.released(name, uid) {
		b.wakeWaiting()
	}
}

// keep looks after an assigned pod: it stays, or must leave.
func (b *Broker) keep(ctx context.Context, pod *corev1.Pod, virtualNode string) (ctrl.Result, error) {
	b.core.assigned(pod, virtualNode)
	b.traceStart(ctx, pod, virtualNode)
	b.measureStart(pod)
	namespace, err := b.namespaceOf(ctx, pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	asked, err := b.policies.CriteriaOf(ctx, pod, namespace)
	if err != nil && !errors.Is(err, placement.ErrInvalid) {
		return ctrl.Result{}, err
	}
	s, err := b.situationOf(ctx, virtualNode)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := b.markUnreachable(ctx, pod, s); err != nil {
		return ctrl.Result{}, err
	}
	reason, later := whyLeave(pod, s, asked.Rules, b.now())
	if reason == stay {
		b.core.stays(pod.UID)
		if err := b.remapAddress(ctx, pod); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: later}, nil
	}
	if wait := b.core.mayMove(pod.UID, b.now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return ctrl.Result{}, b.sendAway(ctx, pod, virtualNode, reason)
}

// isOurs says whether this broker assigned a pod. What becomes of those of an earlier leader is not measured: that they are
// ready now does not say that they were not before.
func (b *Broker) isOurs(pod *corev1.Pod) bool { return !assignedAt(pod).Before(b.since) }

// measureStart takes in, once, how long a pod took to be ready.
func (b *Broker) measureStart(pod *corev1.Pod) {
	if !podIsReady(pod) || !b.isOurs(pod) {
		return
	}
	ready := podCondition(pod, corev1.PodReady)
	took := max(0, ready.LastTransitionTime.Sub(assignedAt(pod).Truncate(time.Second)))
	if b.core.podStarted(pod, took) {
		b.metrics.start.Observe(took.Seconds())
	}
}

// markUnreachable takes a pod out of its Services when its provider cannot be reached, and lets it in again when it
// can. The virtual kubelet, which shows what it saw last, goes by the annotation.
func (b *Broker) markUnreachable(ctx context.Context, pod *corev1.Pod, s situation) error {
	_, marked := pod.Annotations[v1alpha1.UnreachableAnnotation]
	unreachable := !s.lost.IsZero() && !s.suspended
	if placement.Terminal(pod) || pod.DeletionTimestamp != nil || marked == unreachable {
		return nil
	}
	var since any
	if unreachable {
		since = s.lost.UTC().Format(time.RFC3339)
	}
	err := b.patchPod(ctx, pod, map[string]any{"annotations": map[string]any{v1alpha1.UnreachableAnnotation: since}})
	if err == nil && unreachable && podIsReady(pod) {
		err = b.patchPodStatus(ctx, pod, notReady("ProviderUnreachable", "the provider cluster cannot be reached"))
	}
	return err
}

// assign chooses a provider for a pod and writes the choice.
func (b *Broker) assign(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	began := time.Now()
	namespace, err := b.namespaceOf(ctx, pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	asked, err := b.policies.CriteriaOf(ctx, pod, namespace)
	if errors.Is(err, placement.ErrInvalid) {
		b.metrics.decided(outcomeInvalid, "", time.Since(began))
		return ctrl.Result{}, b.explain(ctx, pod, "InvalidCriteria", err.Error())
	}
	if err != nil {
		return ctrl.Result{}, err
	}

	var d scheduler.Decision
	b.core.decide(b.now(), asked.Pod(pod, namespace), asked.Policy, &d)
	switch {
	case d.Err != nil:
		b.metrics.decided(outcomeInvalid, "", time.Since(began))
		return ctrl.Result{}, b.explain(ctx, pod, "InvalidCriteria", d.Err.Error())
	case d.VirtualNode == "":
		b.metrics.decided(outcomeUnassignable, "", time.Since(began))
		b.metrics.rejected(&d)
		return ctrl.Result{}, b.explain(ctx, pod, "NoProviderFits", d.Unschedulable())
	}
	decided := time.Now()
	b.core.ifKnown(d.Provider, func() { b.metrics.decided(outcomeAssigned, d.Provider, decided.Sub(began)) })
	ctx, span := b.traceChoice(ctx, &choice{pod, namespace, asked.Policy, &d, began, decided})
	err = b.give(ctx, pod, &d)
	tracing.End(span, err)
	return ctrl.Result{}, err
}

// give writes the choice of a provider for a pod.
func (b *Broker) give(ctx context.Context, pod *corev1.Pod, d *scheduler.Decision) error {
	annotations := hasLeft()
	annotations[v1alpha1.DecisionAnnotation] = d.Short()
	annotations[v1alpha1.AssignedAtAnnotation] = b.now().UTC().Format(time.RFC3339Nano)
	annotations[v1alpha1.UnreachableAnnotation] = nil
	carry(ctx, pod, annotations)
	err := b.patchTraced(ctx, pod, map[string]any{
		"labels": map[string]any{
			v1alpha1.VirtualNodeLabel: d.VirtualNode, v1alpha1.ProviderLabel: d.Provider,
			// It is what the virtual kubelet would set right after.
			consts.LocalPodLabelKey: consts.LocalPodLabelValue,
		},
		"annotations": annotations,
	})
	if kerrors.IsConflict(err) || kerrors.IsNotFound(err) || kerrors.IsForbidden(err) || kerrors.IsInvalid(err) {
		b.undecide(pod)
		return err
	}
	if err != nil {
		// It may have been written all the same.
		b.core.doubt(pod.UID)
		return err
	}
	b.events.Event(pod, corev1.EventTypeNormal, "Assigned", d.Message())
	if bound := podCondition(pod, corev1.PodScheduled); bound != nil && pod.Annotations[v1alpha1.AssignedAtAnnotation] == "" {
		b.metrics.wait.Observe(max(0, b.now().Sub(bound.LastTransitionTime.Time).Seconds()))
	}
	if took, moved := b.core.arrived(pod.UID, b.now()); moved {
		b.metrics.move.Observe(took.Seconds())
	}
	b.log.V(1).Info("Assigned a pod", "pod", nameOf(pod), "virtualNode", d.VirtualNode, "decision", d.Short())
	return nil
}

// undecide gives back the place that was reserved for a pod.
func (b *Broker) undecide(pod *corev1.Pod) {
	b.core.undecide(pod.UID)
	b.wakeWaiting()
}

// settleDoubt asks the API itself whether a decision was written.
func (b *Broker) settleDoubt(ctx context.Context, pod *corev1.Pod) error {
	var now corev1.Pod
	err := b.live.Get(ctx, nameOf(pod), &now)
	switch {
	case err != nil && !kerrors.IsNotFound(err):
		return err
	case err == nil && now.UID == pod.UID && now.Labels[v1alpha1.VirtualNodeLabel] != "":
		b.core.assigned(&now, now.Labels[v1alpha1.VirtualNodeLabel])
		return nil
	}
	b.undecide(pod)
	b.podQueue.put(nameOf(pod))
	return nil
}

func (b *Broker) namespaceOf(ctx context.Context, pod *corev1.Pod) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	err := b.client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &namespace)
	return &namespace, err
}
