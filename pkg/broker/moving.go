package broker

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
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

func newGoneChecks() workqueue.TypedRateLimiter[types.NamespacedName] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstGoneCheck, lastGoneCheck)
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
			v1alpha1.MovingFromProviderAnnotation: pod.Labels[v1alpha1.ProviderLabel],
		},
	})
	if err != nil {
		return err
	}
	b.log.Info("Moving a pod", "pod", nameOf(pod), "from", virtualNode, "because", why)
	b.events.Eventf(pod, corev1.EventTypeWarning, "Moving", "Moving away from %s: %s", virtualNode, why)
	b.metrics.moves.WithLabelValues(string(reason)).Inc()
	b.tellUnclean(b.core.movedAway(pod, virtualNode, b.now()))
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
	wait, err := b.leave(ctx, pod, leaving, pod.Annotations[v1alpha1.MovingFromProviderAnnotation], s)
	if err != nil || wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, err
	}
	if err := b.forgetAddress(ctx, pod); err != nil {
		return ctrl.Result{}, err
	}
	b.core.hasLeft(pod, leaving)
	b.wakeWaiting()
	if pod.DeletionTimestamp != nil {
		return ctrl.Result{}, b.finalize(ctx, pod)
	}
	return b.assign(ctx, pod)
}

// leave says how long a pod must wait until nothing of it is at a VirtualNode any more, or need not be waited for.
func (b *Broker) leave(ctx context.Context, pod *corev1.Pod, leaving, provider string, s situation) (time.Duration, error) {
	at := leaving
	if !s.known {
		// Another VirtualNode of the same provider can see to what is left of this one.
		b.core.remember(leaving, provider)
		sibling, err := b.siblingOf(ctx, leaving)
		if err != nil {
			return 0, err
		}
		at, s = sibling, b.core.situationOf(sibling)
	}
	wait, err := b.overlap(ctx, pod, leaving, at, s)
	if err != nil || wait > 0 {
		return wait, err
	}
	if !s.lost.IsZero() {
		b.tellUnclean(b.core.leftUnseen(at))
	}
	b.goneChecks.Forget(nameOf(pod))
	return 0, nil
}

// tellUnclean has it written soon that a provider may run what it must not, for the next leader; "" is none.
func (b *Broker) tellUnclean(provider string) {
	if provider != "" {
		b.providerQueue.put(types.NamespacedName{Name: provider})
	}
}

// overlap says how long a pod must wait before it may run elsewhere; 0 when it may, because its old provider has let go
// of it, or has been unreachable for so long that it may run twice. The provider is asked by the VirtualNode at, which is
// leaving or another one of the same provider; "" when the provider has none any more: Liqo has removed the namespaces
// there, with all that was in them.
func (b *Broker) overlap(ctx context.Context, pod *corev1.Pod, leaving, at string, s situation) (time.Duration, error) {
	if at == "" {
		return 0, nil
	}
	if s.lost.IsZero() {
		return b.stillThere(ctx, pod, leaving, at)
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
	return max(0, asked.Rules.FailoverAfter-b.now().Sub(s.believed)), nil
}

// situationOf says what is known of the provider of a VirtualNode. One that exists in the API, but of which the broker
// knows nothing yet, is as good as any.
func (b *Broker) situationOf(ctx context.Context, virtualNode string) (situation, error) {
	s := b.core.situationOf(virtualNode)
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

// stillThere says how long to wait before asking again whether the provider has let go of the pod; 0 when it has. What a
// VirtualNode that is gone has left there is removed.
func (b *Broker) stillThere(ctx context.Context, pod *corev1.Pod, leaving, at string) (time.Duration, error) {
	remote, known := b.remoteNamespace(at, pod.Namespace)
	c := b.connections.get(at)
	switch {
	case !known || c == nil:
		return lastGoneCheck, nil // Nothing can be said yet.
	case remote == "":
		return 0, nil // The namespace is not mapped there any more: Liqo has removed it, with all that was in it.
	}
	return b.ask(ctx, pod, leaving, func(ctx context.Context) error {
		if at != leaving {
			if err := c.remove(ctx, leaving, remote, pod.Name); err != nil {
				return err
			}
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
	out := map[string]any{v1alpha1.MovingFromAnnotation: nil, v1alpha1.MovingFromProviderAnnotation: nil}
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

// siblingOf is another VirtualNode of the provider of one that is gone; "" if there is none.
func (b *Broker) siblingOf(ctx context.Context, gone string) (string, error) {
	b.core.mu.Lock()
	provider := b.core.formerHome[gone]
	b.core.mu.Unlock()
	if provider == "" {
		return "", nil
	}
	virtualNodes, err := b.virtualNodesOf(ctx, provider)
	if err != nil || len(virtualNodes) == 0 {
		return "", err
	}
	return virtualNodes[0].Name, nil
}
