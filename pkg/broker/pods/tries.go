package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/backoff"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/podconditions"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// triesAfter returns the tries of a pod that is evicted from a VirtualNode; nil if it did not fail there.
func (c *Controller) triesAfter(ctx context.Context, pod *corev1.Pod, virtualNode string, why eviction.Reason) (backoff.Tries, error) {
	text := ""
	switch why {
	case eviction.Refused:
		by, _ := refusal.Of(pod)
		text = "refused: " + by.Reason
	case eviction.PendingTooLong:
		criteria, _, err := c.criteriaOf(ctx, pod)
		if err != nil && !errors.Is(err, placement.ErrInvalid) {
			return nil, err
		}
		text = "not started within " + duration.HumanDuration(criteria.Rules.PendingTimeout)
	default:
		return nil, nil
	}
	return backoff.Of(pod).After(virtualNode, text, c.Clock.Now(), c.RefusalMemory), nil
}

// forgetTries removes the tries of a pod when one of its containers was started.
func (c *Controller) forgetTries(ctx context.Context, pod *corev1.Pod) error {
	if _, tried := pod.Annotations[v1alpha1.TriesAnnotation]; !tried || !placement.Started(&pod.Status) {
		return nil
	}
	c.Log.V(1).Info("Pod has started, forgetting its failed tries", "pod", client.ObjectKeyFromObject(pod))
	return c.write.Patch(ctx, pod, map[string]any{"annotations": map[string]any{v1alpha1.TriesAnnotation: nil}})
}

// unassignable returns why no provider was chosen: with BackOff, one may be again when the delay of a try is over.
func (c *Controller) unassignable(pod *corev1.Pod, d *scheduler.Decision) (reason, message string) {
	reason, message = podconditions.NoProviderFits, d.Waiting()
	if slices.ContainsFunc(d.Verdicts, func(v verdict.Verdict) bool { return v.Filter == verdict.RefusedLately }) {
		reason = podconditions.BackOff
	}
	if tried := backoff.Of(pod).Describe(c.Clock.Now()); tried != "" {
		message += "; " + tried
	}
	if of := c.State.Pod(pod.UID); of.ReservedAt != (scheduler.Place{}) {
		message += fmt.Sprintf("; capacity of %s is reserved for it since %s",
			of.ReservedAt.VirtualNode, of.ReservedSince.UTC().Format(time.RFC3339))
	}
	return reason, message
}
