package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	pods, err := b.countPods(ctx, &policy)
	if err != nil {
		return ctrl.Result{}, err
	}
	updated.Status.Pods = pods
	if err := b.client.Status().Patch(ctx, updated, client.MergeFrom(&policy)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("status of PlacementPolicy %s: %w", name, err)
	}
	return ctrl.Result{RequeueAfter: policyCountEvery}, nil
}

// policyCountEvery is how often the pods of a policy are counted.
const policyCountEvery = 30 * time.Second

func (b *Broker) countPods(ctx context.Context, policy *v1alpha1.PlacementPolicy) (int32, error) {
	var pods corev1.PodList
	if err := b.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	n := int32(0)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Labels[v1alpha1.VirtualNodeLabel] == "" || placement.Terminal(pod) {
			continue
		}
		var namespace corev1.Namespace
		if err := b.client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &namespace); err != nil {
			continue // It is going away.
		}
		if policy.Spec.Selection != nil {
			if slices.Contains(policy.Spec.Consumers, placement.ConsumerOf(&namespace)) {
				n++
			}
			continue
		}
		if found, err := b.policies.PolicyOf(ctx, pod, &namespace); err == nil && found != nil && found.Name == policy.Name {
			n++
		}
	}
	return n, nil
}
