package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// How long to wait before looking again whether a provider has let go of a pod.
const (
	firstGoneCheck = 200 * time.Millisecond
	lastGoneCheck  = 5 * time.Second
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
		return ctrl.Result{}, nil
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

// recall counts, once, the room that all assigned pods take, before the first decision is made.
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
	b.recalled = true
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
	if ready := podCondition(pod, corev1.PodReady); podIsReady(pod) && ready.LastTransitionTime.After(b.since) {
		b.core.podStarted(pod, max(0, ready.LastTransitionTime.Sub(assignedAt(pod).Truncate(time.Second))))
	}
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
		if err := b.remapAddress(ctx, pod); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: later}, nil
	}
	if wait := b.core.mayMove(pod.UID, b.now(), func() time.Duration { return b.moves.Reserve().Delay() }); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return ctrl.Result{}, b.sendAway(ctx, pod, virtualNode, reason)
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

// sendAway begins a move: the pod gets no traffic any more and leaves the view of its virtual kubelet.
func (b *Broker) sendAway(ctx context.Context, pod *corev1.Pod, virtualNode string, reason moveReason) error {
	if podIsReady(pod) {
		if err := b.patchPodStatus(ctx, pod, notReady("Moving", reason.describe(virtualNode))); err != nil {
			return err
		}
	}
	why := reason.describe(virtualNode)
	err := b.patchPod(ctx, pod, map[string]any{
		"labels": map[string]any{v1alpha1.VirtualNodeLabel: nil, v1alpha1.ProviderLabel: nil},
		"annotations": map[string]any{
			v1alpha1.MovingFromAnnotation: virtualNode, v1alpha1.DecisionAnnotation: "moving: " + why,
		},
	})
	if err != nil {
		return err
	}
	b.log.Info("Moving a pod", "pod", nameOf(pod), "from", virtualNode, "because", why)
	b.events.Eventf(pod, corev1.EventTypeWarning, "Moving", "Moving away from %s: %s", virtualNode, why)
	b.metrics.moves.WithLabelValues(string(reason)).Inc()
	b.core.movedAway(pod.UID, virtualNode)
	if reason == moveRefused || reason == movePending {
		b.core.refuse(pod, virtualNode, b.now().Add(b.cfg.Times.RefusalMemory), reason == moveRefused && lacksRoom(pod))
		b.metrics.refusals.WithLabelValues(b.providerOf(virtualNode), string(reason)).Inc()
	}
	return nil
}

// letGo waits until the provider that a pod leaves has removed it, and assigns it anew. A provider that cannot be
// reached is not waited for: that is the overlap which failover means.
func (b *Broker) letGo(ctx context.Context, pod *corev1.Pod, leaving string) (ctrl.Result, error) {
	s, err := b.situationOf(ctx, leaving)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := b.clearAddress(ctx, pod, leaving); err != nil {
		return ctrl.Result{}, err
	}
	// It still takes its room there.
	b.core.assigned(pod, leaving)
	wait, err := b.overlap(ctx, pod, leaving, s)
	if err != nil || wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, err
	}
	if !s.lost.IsZero() {
		b.core.leftUnseen(leaving)
	}
	if err := b.forgetAddress(ctx, pod); err != nil {
		return ctrl.Result{}, err
	}
	b.goneChecks.Forget(nameOf(pod))
	b.core.hasLeft(pod, leaving)
	b.wakeWaiting()
	if pod.DeletionTimestamp != nil {
		return ctrl.Result{}, b.finalize(ctx, pod)
	}
	return b.assign(ctx, pod)
}

// overlap says how long a pod must wait before it may run elsewhere; 0 when it may, because its old provider has let go
// of it, or has been unreachable for so long that it may run twice.
func (b *Broker) overlap(ctx context.Context, pod *corev1.Pod, leaving string, s situation) (time.Duration, error) {
	if !s.known {
		return b.cleanUp(ctx, pod, leaving)
	}
	if s.lost.IsZero() {
		return b.stillThere(ctx, pod, leaving)
	}
	namespace, err := b.namespaceOf(ctx, pod)
	if err != nil {
		return 0, err
	}
	asked, err := b.policies.CriteriaOf(ctx, pod, namespace)
	if err != nil && !errors.Is(err, placement.ErrInvalid) {
		return 0, err
	}
	if asked.Rules.Failover == v1alpha1.FailoverNever || s.suspended {
		return b.cfg.Times.ProbeInterval, nil
	}
	return max(0, asked.Rules.FailoverAfter-b.now().Sub(s.lost)), nil
}

// situationOf says what is known of the provider of a VirtualNode. One that exists in the API, but of which the broker
// knows nothing yet, is as good as any.
func (b *Broker) situationOf(ctx context.Context, virtualNode string) (situation, error) {
	s := b.core.situationOf(virtualNode, b.cfg.Times.SuspicionWindow)
	if s.known {
		return s, nil
	}
	var list offloadingv1beta1.VirtualNodeList
	if err := b.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return s, err
	}
	for i := range list.Items {
		s.known = s.known || list.Items[i].Name == virtualNode
	}
	return s, nil
}

// stillThere says how long to wait before asking again whether the provider has let go of the pod; 0 when it has.
func (b *Broker) stillThere(ctx context.Context, pod *corev1.Pod, leaving string) (time.Duration, error) {
	remote, known := b.remoteNamespace(leaving, pod.Namespace)
	c := b.connections.get(leaving)
	switch {
	case !known || c == nil:
		return lastGoneCheck, nil // Nothing can be said yet.
	case remote == "":
		return 0, nil // The namespace is not mapped there any more: Liqo has removed it, with all that was in it.
	}
	return b.ask(ctx, pod, leaving, func(ctx context.Context) error { return c.gone(ctx, leaving, remote, pod.Name) })
}

// cleanUp removes what a VirtualNode that is gone has left at its provider, by another VirtualNode of the same provider.
// If there is none, Liqo has removed the namespaces there.
func (b *Broker) cleanUp(ctx context.Context, pod *corev1.Pod, leaving string) (time.Duration, error) {
	sibling, remote := b.siblingOf(leaving, pod.Namespace)
	c := b.connections.get(sibling)
	if c == nil || remote == "" {
		return 0, nil
	}
	return b.ask(ctx, pod, leaving, func(ctx context.Context) error {
		if err := c.remove(ctx, leaving, remote, pod.Name); err != nil {
			return err
		}
		return c.gone(ctx, leaving, remote, pod.Name)
	})
}

// ask asks a provider whether a pod is gone, and says how long to wait before the next time; 0 if it is.
func (b *Broker) ask(ctx context.Context, pod *corev1.Pod, leaving string, gone func(context.Context) error) (time.Duration, error) {
	// A worker must not be held up for long by one provider.
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Times.ProbeTimeout)
	defer cancel()
	err := gone(ctx)
	switch {
	case err == nil:
		return 0, nil
	case !errors.Is(err, errStillThere):
		b.log.Info("Cannot see whether a provider has let go of a pod", "pod", nameOf(pod), "from", leaving, "because", err.Error())
	}
	return b.goneChecks.When(nameOf(pod)), nil
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
		b.metrics.decided("invalid_criteria", "", time.Since(began))
		return ctrl.Result{}, b.explain(ctx, pod, "InvalidCriteria", err.Error())
	}
	if err != nil {
		return ctrl.Result{}, err
	}

	var d scheduler.Decision
	b.core.decide(b.now(), asked.Pod(pod, namespace), asked.Policy, &d)
	switch {
	case d.Err != nil:
		b.metrics.decided("invalid_criteria", "", time.Since(began))
		return ctrl.Result{}, b.explain(ctx, pod, "InvalidCriteria", d.Err.Error())
	case d.VirtualNode == "":
		b.metrics.decided("unassignable", "", time.Since(began))
		return ctrl.Result{}, b.explain(ctx, pod, "NoProviderFits", d.Unschedulable())
	}
	b.metrics.decided("assigned", d.Provider, time.Since(began))

	// Liqo's label is what the virtual kubelet would set right after.
	annotations := hasLeft()
	annotations[v1alpha1.DecisionAnnotation] = d.Short()
	annotations[v1alpha1.AssignedAtAnnotation] = b.now().UTC().Format(time.RFC3339Nano)
	annotations[v1alpha1.UnreachableAnnotation] = nil
	err = b.patchPod(ctx, pod, map[string]any{
		"labels": map[string]any{
			v1alpha1.VirtualNodeLabel: d.VirtualNode, v1alpha1.ProviderLabel: d.Provider,
			consts.LocalPodLabelKey: consts.LocalPodLabelValue,
		},
		"annotations": annotations,
	})
	if kerrors.IsConflict(err) || kerrors.IsNotFound(err) || kerrors.IsForbidden(err) || kerrors.IsInvalid(err) {
		b.undecide(pod)
		return ctrl.Result{}, err
	}
	if err != nil {
		// It may have been written all the same.
		b.core.doubt(pod.UID)
		return ctrl.Result{}, err
	}
	b.events.Event(pod, corev1.EventTypeNormal, "Assigned", d.Message())
	if bound := podCondition(pod, corev1.PodScheduled); bound != nil && pod.Annotations[v1alpha1.AssignedAtAnnotation] == "" {
		b.metrics.wait.Observe(max(0, b.now().Sub(bound.LastTransitionTime.Time).Seconds()))
	}
	b.log.V(1).Info("Assigned a pod", "pod", nameOf(pod), "virtualNode", d.VirtualNode, "decision", d.Short())
	return ctrl.Result{}, nil
}

// hasLeft is what no longer holds of a pod that has left its provider. Where it ran stays written until then: its
// address went first (clearAddress), so that nobody takes the one for the other.
func hasLeft() map[string]any {
	out := map[string]any{v1alpha1.MovingFromAnnotation: nil}
	for _, key := range v1alpha1.RootAnnotations() {
		out[key] = nil
	}
	return out
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

// explain says on a pod why no provider was found for it, once for each reason.
func (b *Broker) explain(ctx context.Context, pod *corev1.Pod, reason, message string) error {
	if pod.Annotations[v1alpha1.MovingFromAnnotation] != "" {
		// It has left, and waits like any other: what becomes of its last provider does not concern it any more.
		annotations := hasLeft()
		annotations[v1alpha1.DecisionAnnotation] = nil
		err := b.patchPod(ctx, pod, map[string]any{"annotations": annotations})
		if err != nil {
			return err
		}
	}
	known := podCondition(pod, v1alpha1.ConditionAssigned)
	if known != nil && known.Reason == reason && known.Message == message {
		return nil
	}
	if known == nil || known.Reason != reason || known.Status != corev1.ConditionFalse || reason == "InvalidCriteria" {
		// The counts of a message change with every pod that comes or goes.
		b.events.Event(pod, corev1.EventTypeWarning, "FailedAssignment", message)
	}
	return b.patchPodStatus(ctx, pod, corev1.PodCondition{
		Type: v1alpha1.ConditionAssigned, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	})
}

// clearAddress takes what the last virtual kubelet said from a pod that leaves it: were the address to stay, Liqo would
// map it again as soon as its IP object is deleted, and the next address never.
func (b *Broker) clearAddress(ctx context.Context, pod *corev1.Pod, leaving string) error {
	if pod.Status.Phase == corev1.PodPending && pod.Status.PodIP == "" {
		return nil
	}
	// Containers that have ended may not run again in the eyes of the API server, so they go too; and a pod that does not
	// start at the next provider is then Pending there.
	return b.patchPodStatusWith(ctx, pod, map[string]any{
		"phase": corev1.PodPending, "podIP": nil, "podIPs": nil,
		"containerStatuses": nil, "initContainerStatuses": nil, "ephemeralContainerStatuses": nil,
		"conditions": []corev1.PodCondition{b.timed(notReady("Moving", "leaving "+leaving))},
	})
}

func notReady(reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

// forgetAddress deletes Liqo's IP object of a pod that gets another address: spec.ip cannot be changed, and a stale one
// makes Liqo's EndpointSlice reflection fail.
func (b *Broker) forgetAddress(ctx context.Context, pod *corev1.Pod) error {
	ip := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := b.client.Delete(ctx, ip); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("IP of pod %s: %w", nameOf(pod), err)
	}
	return nil
}

// finalize ends a pod that is being deleted and runs nowhere.
func (b *Broker) finalize(ctx context.Context, pod *corev1.Pod) error {
	none := int64(0)
	return client.IgnoreNotFound(b.client.Delete(ctx, pod, &client.DeleteOptions{
		GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	}))
}

// patchPod changes labels and annotations in one request; null removes. It is refused with a Conflict if the pod is not
// what it was when it was read: a leader that was paused, or whose cache lags, changes nothing.
func (b *Broker) patchPod(ctx context.Context, pod *corev1.Pod, metadata map[string]any) error {
	metadata["resourceVersion"] = pod.ResourceVersion
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	began := time.Now()
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = b.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	b.metrics.patched("pods", err, time.Since(began))
	if err == nil {
		pod.ResourceVersion = target.ResourceVersion
	}
	return err
}

func (b *Broker) patchPodStatus(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	return b.patchPodStatusWith(ctx, pod, map[string]any{"conditions": []corev1.PodCondition{b.timed(condition)}})
}

func (b *Broker) timed(condition corev1.PodCondition) corev1.PodCondition {
	condition.LastTransitionTime = metav1.NewTime(b.now())
	return condition
}

// patchPodStatusWith changes fields of the status; like patchPod it changes the pod that was read, or none.
func (b *Broker) patchPodStatusWith(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": pod.ResourceVersion}, "status": status,
	})
	if err != nil {
		return err
	}
	began := time.Now()
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = b.client.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, body))
	b.metrics.patched("pods/status", err, time.Since(began))
	if err == nil {
		pod.ResourceVersion = target.ResourceVersion
	}
	return err
}

func (b *Broker) namespaceOf(ctx context.Context, pod *corev1.Pod) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	err := b.client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &namespace)
	return &namespace, err
}

func (b *Broker) providerOf(virtualNode string) string {
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	return b.core.homeOf[virtualNode]
}

// remoteNamespace is the name of a local namespace at the provider of a VirtualNode, "" if it is not mapped there; known
// is false while nothing can be said.
func (b *Broker) remoteNamespace(virtualNode, local string) (remote string, known bool) {
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	p, ok := b.core.providers[b.core.homeOf[virtualNode]]
	if !ok || p.remoteNamespaces == nil {
		return "", false
	}
	return p.remoteNamespaces[local], true
}

// siblingOf is another VirtualNode of the provider of one that is gone, and the name of a local namespace there.
func (b *Broker) siblingOf(gone, local string) (virtualNode, remote string) {
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	provider := b.core.formerHome[gone]
	p, ok := b.core.providers[provider]
	if !ok {
		return "", ""
	}
	for name, home := range b.core.homeOf {
		if home == provider && (virtualNode == "" || name < virtualNode) {
			virtualNode = name
		}
	}
	return virtualNode, p.remoteNamespaces[local]
}
