package broker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// reconcilePolicy says of a policy whether it can be followed and for how many assigned pods it is; when it has
// changed, the pods that wait for room are tried again.
func (b *Broker) reconcilePolicy(ctx context.Context, name string) (ctrl.Result, error) {
	var policy v1alpha1.PlacementPolicy
	if err := b.client.Get(ctx, client.ObjectKey{Name: name}, &policy); err != nil {
		// Its pods follow another policy now, or none: those too that stay unassigned because it was not valid, which
		// do not wait for room.
		b.metrics.forgetPolicy(name)
		b.wakePodsOf(ctx, "")
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	updated := policy.DeepCopy()
	valid, reason, message := metav1.ConditionTrue, "Valid", ""
	if _, err := b.policies.Compile(&policy); err != nil {
		valid, reason, message = metav1.ConditionFalse, "Invalid", strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	conditionChanged(&updated.Status.Conditions, v1alpha1.PolicyValid, valid, reason, message, policy.Generation)
	if updated.Status.ObservedGeneration != policy.Generation {
		b.wakeWaiting()
		// Pods that are assigned follow the new rules of moving.
		b.wakePodsOf(ctx, "")
	}
	updated.Status.ObservedGeneration = policy.Generation
	counts, err := b.policyCounts.read(b.now(), func() (map[string]int32, error) { return b.countPods(ctx) })
	if err != nil {
		return ctrl.Result{}, err
	}
	updated.Status.Pods = counts[name]
	b.metrics.policy(name, valid == metav1.ConditionTrue, counts[name])
	if err := b.client.Status().Patch(ctx, updated, client.MergeFrom(&policy)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("status of PlacementPolicy %s: %w", name, err)
	}
	return ctrl.Result{RequeueAfter: policyCountEvery}, nil
}

const (
	// policyCountEvery is how often the pods of every policy are counted.
	policyCountEvery = 30 * time.Second
	// policyCountFresh is how old a count may be that serves several policies.
	policyCountFresh = 10 * time.Second
)

// policyCounts are how many assigned pods each policy is for. All of them are counted in one walk over the pods.
type policyCounts struct {
	mu     sync.Mutex
	at     time.Time        // Guarded by mu.
	counts map[string]int32 // By policy; replaced, never changed; guarded by mu.
}

func (c *policyCounts) read(now time.Time, count func() (map[string]int32, error)) (map[string]int32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts != nil && now.Sub(c.at) < policyCountFresh {
		return c.counts, nil
	}
	fresh, err := count()
	if err != nil {
		return nil, fmt.Errorf("counting the pods of policies: %w", err)
	}
	c.counts, c.at = fresh, now
	return fresh, nil
}

// countPods counts, for every policy, the assigned pods that it is for.
func (b *Broker) countPods(ctx context.Context) (map[string]int32, error) {
	ranked, err := b.policies.Ranked(ctx)
	if err != nil {
		return nil, err
	}
	var namespaces corev1.NamespaceList
	var pods corev1.PodList
	if err := b.client.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	if err := b.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	byName := make(map[string]*corev1.Namespace, len(namespaces.Items))
	for i := range namespaces.Items {
		byName[namespaces.Items[i].Name] = &namespaces.Items[i]
	}
	counts, perConsumer := map[string]int32{}, map[string]int32{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		namespace, known := byName[pod.Namespace]
		if !known || pod.Labels[v1alpha1.VirtualNodeLabel] == "" || placement.Terminal(pod) {
			continue
		}
		perConsumer[placement.ConsumerOf(namespace)]++
		if policy, err := ranked.Of(pod, namespace); err == nil && policy != nil {
			counts[policy.Name]++
		}
	}
	for i := range ranked {
		if ranked[i].Spec.Selection != nil {
			for _, consumer := range ranked[i].Spec.Consumers {
				counts[ranked[i].Name] += perConsumer[consumer]
			}
		}
	}
	return counts, nil
}
