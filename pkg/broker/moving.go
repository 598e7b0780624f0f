package broker

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// How long to wait before looking again whether a provider has let go of a pod.
const (
	firstGoneCheck = 200 * time.Millisecond
	lastGoneCheck  = 5 * time.Second
)

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
	b.core.movedAway(pod, virtualNode, b.now())
	if reason == moveRefused || reason == movePending {
		b.core.refuse(pod, virtualNode, b.now().Add(b.cfg.Times.RefusalMemory), reason == moveRefused && lacksRoom(pod))
		provider := b.providerOf(virtualNode)
		b.core.ifKnown(provider, func() { b.metrics.providers.refusals.WithLabelValues(provider, string(reason)).Inc() })
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

// hasLeft is what no longer holds of a pod that has left its provider. Where it ran stays written until then: its
// address went first (clearAddress), so that nobody takes the one for the other.
func hasLeft() map[string]any {
	out := map[string]any{v1alpha1.MovingFromAnnotation: nil}
	for _, key := range v1alpha1.RootAnnotations() {
		out[key] = nil
	}
	return out
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
