package pods

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/backoff"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/podpatch"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/termination"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// leavingRecheck is how often a pod is checked that waits for its provider's answer, with which it is requeued.
const leavingRecheck = 5 * time.Second

// mostOfProblem bounds how much of a provider's last problem the event and the annotation of a move quote (bytes).
const mostOfProblem = 200

// evict begins a move: the pod leaves its Services, and loses the label by which its virtual kubelet selects it.
func (c *Controller) evict(ctx context.Context, pod *corev1.Pod, from scheduler.Place, why eviction.Reason) error {
	description := why.Describe(from.VirtualNode)
	if problem := c.State.VirtualNode(from).Problem; why == eviction.Unreachable && problem != "" {
		description += ": " + untrusted.Cut(problem, mostOfProblem)
	}
	by, isRefused := refusal.Of(pod) // By the label, which is removed.
	quotaExceeded := why == eviction.Refused && isRefused && by.Reason == refusal.QuotaExceeded
	tried, err := c.triesAfter(ctx, pod, from.VirtualNode, why)
	if err != nil {
		return err
	}
	if pod.Spec.RestartPolicy == corev1.RestartPolicyNever && pod.DeletionTimestamp == nil && c.State.Pod(pod.UID).Started {
		// Its provider has made it again, so its status does not show that it has run.
		if err := c.markDisrupted(ctx, pod, from.VirtualNode); err != nil {
			return err
		}
	}
	if placement.Ready(pod) {
		if err := c.write.PatchCondition(ctx, pod, podpatch.NotReady("Moving", description)); err != nil {
			return err
		}
	}
	annotations := map[string]any{
		v1alpha1.MovingFromAnnotation: from.VirtualNode, v1alpha1.DecisionAnnotation: "moving: " + description,
		v1alpha1.MovingFromProviderAnnotation: from.Provider,
	}
	if tried != nil {
		annotations[v1alpha1.TriesAnnotation] = tried.Annotation()
	}
	if why == eviction.Reclaimed {
		annotations[v1alpha1.ReclaimedAnnotation] = c.Clock.Now().UTC().Format(time.RFC3339)
	}
	c.Checker.Forget(client.ObjectKeyFromObject(pod)) // Whether it is gone is asked anew, also if this has no answer.
	err = c.write.Patch(ctx, pod, podpatch.Fit(pod, map[string]any{
		"labels":      map[string]any{v1alpha1.VirtualNodeLabel: nil, v1alpha1.ProviderLabel: nil},
		"annotations": annotations,
	}, v1alpha1.DecisionAnnotation, v1alpha1.TriesAnnotation, v1alpha1.TraceparentAnnotation))
	if err != nil {
		return err
	}
	c.Log.Info("Moving a pod", "pod", client.ObjectKeyFromObject(pod), "from", from.VirtualNode, "reason", description)
	c.Events.Eventf(pod, corev1.EventTypeWarning, "Moving", "Moving away from %s: %s", from.VirtualNode, description)
	c.Metrics.moves.WithLabelValues(string(why)).Inc()
	c.requeueUnclean(c.State.ObserveEvicted(pod, from))
	if tried != nil {
		c.State.ObserveRefused(pod, state.Refusal{
			Owner: c.ownerOf(ctx, pod), OwnFault: placement.OwnFault(&pod.Status),
			By: from, Reason: state.RefusalReason(why), Until: c.Clock.Now().Add(c.RefusalMemory),
			LacksRoom: quotaExceeded, Lacks: by.Exceeded, Again: tried[from.VirtualNode].Count > 1,
		})
	}
	return nil
}

// ownerOf returns to whom a pod is counted; "" if its namespace is not known.
func (c *Controller) ownerOf(ctx context.Context, pod *corev1.Pod) string {
	namespace, err := c.namespaceOf(ctx, pod)
	if err != nil {
		return ""
	}
	return placement.OwnerOf(namespace)
}

// release waits until the provider that a moving pod leaves has removed it, and assigns the pod again. It does not wait
// for an unreachable provider: then the pod may run twice until the provider is back, which is the price of failover.
func (c *Controller) release(ctx context.Context, pod *corev1.Pod, from scheduler.Place) (ctrl.Result, error) {
	prepare, once := c.clearStatus, runsOnce(pod) && pod.DeletionTimestamp == nil
	if once {
		prepare = c.markDisrupted
	}
	if err := prepare(ctx, pod, from.VirtualNode); err != nil {
		return ctrl.Result{}, err
	}
	if from.Provider == "" {
		wait, err := c.unnamedDelay(ctx, pod, from)
		if err != nil || wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, err
		}
	} else {
		c.State.ObserveAssigned(pod, from) // It takes room there until it has left.
		wait, err := c.releaseDelay(ctx, pod, from)
		if err != nil || wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, err
		}
	}
	if err := c.forgetAddress(ctx, pod); err != nil {
		return ctrl.Result{}, err
	}
	c.State.ObserveLeft(pod, from)
	c.Requeue.Unassigned()
	switch {
	case pod.DeletionTimestamp != nil:
		return ctrl.Result{}, c.finalize(ctx, pod)
	case once:
		return ctrl.Result{}, c.endDisrupted(ctx, pod, from.VirtualNode)
	}
	return c.assign(ctx, pod)
}

// unnamedDelay is releaseDelay for a pod that leaves a VirtualNode of an unknown provider: an earlier version of the
// broker wrote no provider, or an administrator has removed the annotation. All providers with a VirtualNode of that
// name are asked; if the VirtualNode is gone, all providers. The one that may be meant is written.
func (c *Controller) unnamedDelay(ctx context.Context, pod *corev1.Pod, from scheduler.Place) (longest time.Duration, err error) {
	places := c.placesNamed(from.VirtualNode)
	if len(places) == 1 {
		provider := map[string]any{v1alpha1.MovingFromProviderAnnotation: places[0].Provider}
		err := c.write.Patch(ctx, pod, map[string]any{"annotations": provider})
		return leavingRecheck, err
	}
	for _, at := range places {
		wait, err := c.delayAt(ctx, pod, at)
		if err != nil {
			return 0, err
		}
		longest = max(longest, wait)
	}
	if longest == 0 {
		c.Checker.Forget(client.ObjectKeyFromObject(pod))
	}
	return longest, nil
}

// placesNamed returns all VirtualNodes of a name. Without one it returns that name at each provider: the VirtualNode
// may be gone.
func (c *Controller) placesNamed(virtualNode string) (named []scheduler.Place) {
	for _, at := range c.State.VirtualNodes() {
		if at.VirtualNode == virtualNode {
			named = append(named, at)
		}
	}
	if len(named) > 0 {
		return named
	}
	for _, id := range c.State.Providers() {
		named = append(named, scheduler.Place{Provider: id, VirtualNode: virtualNode})
	}
	return named
}

// releaseDelay returns how long a pod must wait until it is checked again; 0 when it no longer exists at a VirtualNode,
// or its provider is not waited for.
func (c *Controller) releaseDelay(ctx context.Context, pod *corev1.Pod, from scheduler.Place) (time.Duration, error) {
	wait, err := c.delayAt(ctx, pod, from)
	if err == nil && wait == 0 {
		c.Checker.Forget(client.ObjectKeyFromObject(pod))
	}
	return wait, err
}

// delayAt is releaseDelay for one of the VirtualNodes that are asked.
func (c *Controller) delayAt(ctx context.Context, pod *corev1.Pod, from scheduler.Place) (time.Duration, error) {
	at, err := c.placeOf(ctx, pod, from)
	if err != nil {
		return 0, err
	}
	wait, givenUp, err := c.overlapDelay(ctx, pod, &at)
	if err != nil || wait > 0 {
		return wait, err
	}
	if givenUp {
		c.requeueUnclean(c.State.ObserveGivenUp(at.pod.Via))
	}
	if at.occupied {
		return 0, c.writeOccupied(ctx, pod, from.VirtualNode)
	}
	return 0, nil
}

// writeOccupied writes that a pod cannot be assigned to a VirtualNode for a while: a pod that has stopped has its name
// there.
func (c *Controller) writeOccupied(ctx context.Context, pod *corev1.Pod, virtualNode string) error {
	const why = "a finalizer keeps the stopped pod there"
	tried := backoff.Of(pod).After(virtualNode, why, c.Clock.Now(), c.RefusalMemory).Annotation()
	if err := c.write.Patch(ctx, pod, map[string]any{"annotations": map[string]any{v1alpha1.TriesAnnotation: tried}}); err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.TriesAnnotation, tried) // It is decided by this copy of the pod.
	return nil
}

// place is where a pod is that leaves.
type place struct {
	pod termination.Pod
	// known is the state of the provider.
	known state.VirtualNode
	// mapped is false if it is not known whether the provider has the namespace of the pod.
	mapped bool
	// unmapped means that no NamespaceMap has the namespace any more, which proves nothing: Liqo's crd-replicator drops
	// one without removing anything there if it may not read it there, or does not reach the provider
	// (deleteRemoteObject).
	unmapped bool
	// alone means that the VirtualNode is gone, and the provider has no other one: it is not probed any more.
	alone bool
	// drained means that an administrator has drained the provider.
	drained bool
	// occupied means that a pod which has stopped has its name there.
	occupied bool
}

// anyUID reports whether any pod of the name is meant.
func (at *place) anyUID() bool { return at.pod.UID == "" }

// lost reports whether a provider does not answer about a pod, so that it is given up once it was silent for long
// (silentSince). A provider that was not asked is not silent: the pod may run there. A provider that rejects the broker
// is alive, and no client can end the pod there, until Liqo has removed the namespace and the identity by which to ask,
// or an administrator has given it up. A provider that accepts the broker, but rejects this question, has only removed
// the rights in this namespace, which Liqo granted.
func (at *place) lost(answer *termination.Answer, deleting bool) bool {
	switch {
	case answer.Unasked():
		return at.unmapped
	case answer.Refused():
		accepts := at.known.Confirmed && !at.known.Unusable && !at.known.Terminating
		return accepts || at.mayBeGivenUp(deleting)
	}
	return answer.Err != nil && at.alone
}

// forgetRejection makes the Checker ask a provider again that rejects the broker: once it accepts the broker, its
// earlier rejections do not count.
func (c *Controller) forgetRejection(pod *corev1.Pod, at *place, answer *termination.Answer) {
	if answer.Refused() && at.known.Unusable && !at.mayBeGivenUp(pod.DeletionTimestamp != nil) {
		c.Checker.Forget(client.ObjectKeyFromObject(pod))
	}
}

// mayBeGivenUp reports whether the pods of a provider that is alive may be given up: Liqo has removed the namespace, an
// administrator has drained the provider, or the pod is being deleted and nothing is left that could end it.
func (at *place) mayBeGivenUp(deleting bool) bool {
	return at.unmapped || at.drained || at.alone && deleting
}

// silentSince returns since when a provider counts as not answering about a pod.
func (at *place) silentSince(answer *termination.Answer, deleting bool) time.Time {
	if at.mayBeGivenUp(deleting) || answer.Refused() || answer.Since.After(answer.Alive) {
		return answer.Since
	}
	return answer.Alive
}

// placeOf returns where a pod is. If the VirtualNode is gone, another one of the same provider is used to ask. Without
// another one, Liqo is about to remove the namespaces there: it drops the VirtualNode as soon as it has requested that,
// and keeps the NamespaceMap until they are gone (virtualnode-controller, namespacemap-controller).
func (c *Controller) placeOf(ctx context.Context, pod *corev1.Pod, from scheduler.Place) (at place, err error) {
	if at.known, err = c.virtualNode(ctx, from); err != nil {
		return at, err
	}
	at.pod = termination.Pod{
		Name: client.ObjectKeyFromObject(pod), UID: pod.UID, VirtualNode: from.VirtualNode, Via: from,
		Ends: placement.Terminal(pod) || pod.DeletionTimestamp != nil,
	}
	if pod.Labels[v1alpha1.VirtualNodeLabel] == "" && pod.Annotations[v1alpha1.AssignedAtAnnotation] == "" {
		at.pod.UID = "" // It was nowhere: an earlier pod of its name is meant.
	}
	if !at.known.Known {
		// Its ShadowPod is deleted once the pod is evicted, or has ended.
		at.pod.Orphan = pod.Labels[v1alpha1.VirtualNodeLabel] == "" || placement.Terminal(pod)
		sibling, err := c.siblingOf(ctx, from.Provider)
		if err != nil {
			return at, err
		}
		if sibling == "" {
			at.mapped, at.alone = true, true
			if at.drained, err = c.isDrained(ctx, from.Provider); err != nil {
				return at, err
			}
			at.pod.RemoteNamespace, err = c.RemoteNamespace(ctx, from.Provider, pod.Namespace)
			at.remember(pod)
			return at, err
		}
		at.pod.Via.VirtualNode = sibling
		at.known = c.State.VirtualNode(at.pod.Via)
	}
	at.drained = at.known.Drained
	at.pod.RemoteNamespace, at.mapped = c.State.RemoteNamespace(at.pod.Via, pod.Namespace)
	at.remember(pod)
	return at, nil
}

// isDrained reports whether an administrator drains a provider that has no VirtualNode any more. Its ProviderCluster
// stays then.
func (c *Controller) isDrained(ctx context.Context, provider string) (bool, error) {
	var pc v1alpha1.ProviderCluster
	err := c.Client.Get(ctx, client.ObjectKey{Name: provider}, &pc)
	return pc.Spec.Drain, client.IgnoreNotFound(err)
}

// remember makes the Checker ask the provider in the namespace that the pod had there when it was assigned, if it is no
// longer mapped.
func (at *place) remember(pod *corev1.Pod) {
	if at.mapped && at.pod.RemoteNamespace == "" && !at.anyUID() {
		at.pod.RemoteNamespace = pod.Annotations[v1alpha1.RemoteNamespaceAnnotation]
		at.unmapped = at.pod.RemoteNamespace != ""
		// The virtual kubelet reflects no namespace that is mapped no more.
		at.pod.Orphan = at.unmapped && (pod.Labels[v1alpha1.VirtualNodeLabel] == "" || placement.Terminal(pod))
	}
}

// siblingOf returns another VirtualNode of a provider whose VirtualNode is gone; "" if there is none.
func (c *Controller) siblingOf(ctx context.Context, provider string) (string, error) {
	if provider == "" {
		return "", nil
	}
	return c.Sibling(ctx, provider)
}

// requeueUnclean requeues a provider, so that it is soon written for the next leader that pods which moved away may
// still run there; "" requeues none.
func (c *Controller) requeueUnclean(provider string) {
	if provider != "" {
		c.Providers.Add(types.NamespacedName{Name: provider})
	}
}

// overlapDelay returns how long a pod must wait before it may run elsewhere; 0 when its old provider has removed it, or
// has not answered for so long that it is given up, and the pod may run twice.
func (c *Controller) overlapDelay(ctx context.Context, pod *corev1.Pod, at *place) (wait time.Duration, givenUp bool, err error) {
	if !at.known.UnreachableSince.IsZero() {
		if at.known.MovesSuspended {
			return c.ProbeInterval, false, nil
		}
		wait, err = c.failoverDelay(ctx, pod, at.known.FailoverFrom, false)
		return wait, true, err
	}
	switch {
	case !at.mapped:
		return leavingRecheck, false, nil // That is not known yet.
	case at.pod.RemoteNamespace == "":
		// Liqo has removed the namespace with everything in it. A creation in flight succeeds if the namespace is
		// created again.
		return c.creationDelay(pod, at), false, nil
	}
	appears, err := c.appearanceTime(ctx, pod, at)
	if err != nil {
		return 0, false, err
	}
	answer := c.askLeaving(pod, at, appears)
	c.forgetRejection(pod, at, &answer)
	switch {
	case at.unmapped && !at.alone && !at.known.Unusable && (kerrors.IsForbidden(answer.Err) || kerrors.IsNotFound(answer.Err)):
		// Liqo grants rights in each namespace, and removes them with it. The provider accepts this cluster.
		return c.creationDelay(pod, at), false, nil
	case at.lost(&answer, pod.DeletionTimestamp != nil):
		// Nothing is left that could end one that is being deleted.
		wait, err = c.failoverDelay(ctx, pod,
			at.silentSince(&answer, pod.DeletionTimestamp != nil), at.alone && pod.DeletionTimestamp != nil)
		return wait, true, err
	case answer.Status != nil && !at.anyUID():
		if written, err := c.writeEndThere(ctx, pod, at, &answer); written || err != nil {
			return leavingRecheck, false, err
		}
	}
	switch {
	case answer.Present && !answer.Stopped:
		c.State.ObservePresence(pod, presenceOf(&answer))
		return leavingRecheck, false, nil
	case !answer.Known || !at.pod.Settled:
		return leavingRecheck, false, nil
	case answer.Remaking && c.State.Pod(pod.UID).SeenThere:
		c.State.ObservePresence(pod, state.WithoutPod)
		return time.Millisecond, false, nil
	case answer.Present, appears == 0, at.pod.Waited:
		at.occupied = answer.Present
		return 0, false, nil
	}
	since := c.State.ObservePresence(pod, state.Gone)
	return max(time.Millisecond, appears-c.Clock.Since(since)), false, nil
}

// writeEndThere writes the end that the provider's status of a leaving pod shows, and reports whether it shows one.
func (c *Controller) writeEndThere(ctx context.Context, pod *corev1.Pod, at *place, answer *termination.Answer) (bool, error) {
	switch {
	case runsOnce(pod) && !at.pod.Ends && placement.TerminalPhase(answer.Status.Phase):
		return true, c.writeEnd(ctx, pod, answer.Status) // Its kubelet ends it, because it is deleted there.
	case startedOnce(pod, answer.Status):
		return true, c.markDisrupted(ctx, pod, at.pod.VirtualNode)
	case answer.Ended && !at.pod.Ends:
		// It has ended while it was leaving. A virtual kubelet reports that as well, an orphan has none.
		return true, c.writeEnd(ctx, pod, answer.Status)
	}
	return false, nil
}

// presenceOf returns the presence of a pod that an answer shows. A pod without one may still appear, or appear again.
func presenceOf(answer *termination.Answer) state.Presence {
	if answer.Status == nil || answer.Remaking {
		return state.WithoutPod
	}
	return state.PodThere
}

// askLeaving asks a provider about a pod that leaves it. Answers from before the last possible creation of its
// ShadowPod, or from before the time in which its pod may appear, do not count.
func (c *Controller) askLeaving(pod *corev1.Pod, at *place, appears time.Duration) termination.Answer {
	gone := c.State.Pod(pod.UID).GoneSince
	at.pod.Settled = c.settled(pod, at)
	at.pod.Waited = appears > 0 && !gone.IsZero() && c.Clock.Since(gone) >= appears
	answer := c.Checker.Ask(at.pod)
	if !at.pod.Settled && c.Clock.Since(answer.Asked) >= v1alpha1.CreationDeadline {
		at.pod.Settled = true
		answer = c.Checker.Ask(at.pod)
	}
	return answer
}

// appearanceTime returns for how long a pod may still appear at a provider that does not have it: Liqo's controller
// there has read its ShadowPod, and a webhook for pods delays the creation. Kubernetes' garbage collector removes the
// pod later, as its owner is gone. The time is 0 if the provider last showed the pod itself, which ended then, or if
// there was no ShadowPod to create it from.
func (c *Controller) appearanceTime(ctx context.Context, pod *corev1.Pod, at *place) (time.Duration, error) {
	seen := c.State.Pod(pod.UID).SeenThere
	none := pod.Annotations[v1alpha1.NotForwardedAnnotation] == v1alpha1.Assignment(at.pod.VirtualNode, pod) && !at.anyUID()
	if seen || none || placement.Terminal(pod) {
		return 0, nil
	}
	criteria, _, err := c.criteriaOf(ctx, pod)
	if err != nil && !errors.Is(err, placement.ErrInvalid) {
		return 0, err
	}
	if criteria.Rules.Failover == v1alpha1.FailoverNever {
		return v1alpha1.PodCreationDeadline, nil
	}
	return v1alpha1.PodCreationTimeout, nil
}

// failoverDelay returns how long a pod must wait whose provider has not answered since then. A pod that never fails
// over waits until its provider answers, unless it ends anyway.
func (c *Controller) failoverDelay(ctx context.Context, pod *corev1.Pod, since time.Time, ends bool) (time.Duration, error) {
	criteria, _, err := c.criteriaOf(ctx, pod)
	if err != nil && !errors.Is(err, placement.ErrInvalid) {
		return 0, err
	}
	if criteria.Rules.Failover == v1alpha1.FailoverNever && !ends {
		return c.ProbeInterval, nil
	}
	return max(0, criteria.Rules.FailoverAfter-c.Clock.Since(since)), nil
}

// settled reports whether no creation of a pod's ShadowPod is in flight: the pod has ended, its virtual kubelet has
// released it, or it is an earlier pod of the name, which existed there.
func (c *Controller) settled(pod *corev1.Pod, at *place) bool {
	if at.anyUID() {
		earlier, known := c.State.Earlier(pod)
		return known && (earlier.Seen || earlier.Released)
	}
	return placement.Terminal(pod) || pod.Annotations[v1alpha1.ReleasedAnnotation] == v1alpha1.Assignment(at.pod.VirtualNode, pod)
}

// creationDelay returns how long a creation of a pod's ShadowPod may still be in flight. Without the namespace the
// provider cannot be asked.
func (c *Controller) creationDelay(pod *corev1.Pod, at *place) time.Duration {
	since := c.State.ObserveLeaves(pod)
	if c.settled(pod, at) {
		return 0
	}
	return max(0, v1alpha1.CreationDeadline-c.Clock.Since(since))
}

// clearedByLeaving removes the annotations that no longer hold once a pod has left its provider. The annotations of its
// last place stay until its address is removed (clearStatus), so that place and address are never of different
// providers.
func clearedByLeaving() map[string]any {
	annotations := map[string]any{
		v1alpha1.MovingFromAnnotation: nil, v1alpha1.MovingFromProviderAnnotation: nil, v1alpha1.RemoteNamespaceAnnotation: nil,
	}
	for _, key := range v1alpha1.RootAnnotations() {
		annotations[key] = nil
	}
	return annotations
}

// reconcileEnded ends a terminal pod that is being deleted and has no virtual kubelet that would do so. A terminal pod
// that is kept holds no capacity at a VirtualNode that is gone, whether it is assigned there or leaving it.
func (c *Controller) reconcileEnded(ctx context.Context, pod *corev1.Pod, assigned scheduler.Place) (ctrl.Result, error) {
	deleting, isAssigned := pod.DeletionTimestamp != nil, assigned != (scheduler.Place{})
	if !isAssigned {
		assigned = placement.MovingFrom(pod)
	}
	gone := false
	if assigned != (scheduler.Place{}) {
		at, err := c.virtualNode(ctx, assigned)
		if err != nil {
			return ctrl.Result{}, err
		}
		gone = !at.Known
	}
	if !gone && isAssigned && !deleting && placement.DisruptedThere(pod) {
		return c.releaseDisrupted(ctx, pod)
	}
	if !gone {
		c.Checker.Forget(client.ObjectKeyFromObject(pod)) // It may have been asked whether it has ended.
		if deleting && !isAssigned {
			return ctrl.Result{}, c.finalize(ctx, pod)
		}
		return ctrl.Result{}, nil
	}
	if !deleting && c.Guard.Missing() != "" {
		return ctrl.Result{RequeueAfter: admission.Recheck}, nil
	}
	wait, err := c.releaseDelay(ctx, pod, assigned)
	if err != nil || wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, err
	}
	if !deleting {
		// The quota of a later VirtualNode of that name does not count it.
		return ctrl.Result{}, c.write.Patch(ctx, pod, map[string]any{
			"labels":      map[string]any{v1alpha1.VirtualNodeLabel: nil, v1alpha1.ProviderLabel: nil},
			"annotations": map[string]any{v1alpha1.MovingFromAnnotation: nil, v1alpha1.MovingFromProviderAnnotation: nil},
		})
	}
	return ctrl.Result{}, c.finalize(ctx, pod)
}
