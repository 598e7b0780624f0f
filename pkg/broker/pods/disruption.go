package pods

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/podpatch"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

const (
	// scaleUpFor is how long to wait for a pod after a cluster autoscaler at its provider has started a node for it,
	// longestScaleUp how long it may be Pending at most beyond that.
	scaleUpFor     = 15 * time.Minute
	longestScaleUp = 45 * time.Minute
	// scaleUpRecheck is how often the events of such a pod are read.
	scaleUpRecheck = time.Minute
)

// runsOnce reports whether a pod must not be started at another provider: Kubernetes never starts a container of a pod
// with restartPolicy Never again. kubectl drain, and the loss of a Node, end it as Failed, and its Job decides.
func runsOnce(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever && (placement.Started(&pod.Status) || isDisrupted(pod))
}

func isDisrupted(pod *corev1.Pod) bool {
	target := placement.Condition(pod, corev1.DisruptionTarget)
	return target != nil && target.Status == corev1.ConditionTrue && target.Reason == v1alpha1.ReasonEvictionByBroker
}

// startedOnce reports whether a pod runs once, and has started at its provider, which is not known here yet. One that
// is being deleted ends in any case.
func startedOnce(pod *corev1.Pod, there *corev1.PodStatus) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever && pod.DeletionTimestamp == nil && !runsOnce(pod) && placement.Started(there)
}

// markDisrupted writes the condition by which Jobs know that a pod has not failed by itself.
func (c *Controller) markDisrupted(ctx context.Context, pod *corev1.Pod, from string) error {
	if isDisrupted(pod) {
		return nil
	}
	target := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonEvictionByBroker,
		Message: fmt.Sprintf("evicted from %s; a pod with restartPolicy Never is not started again elsewhere", from),
	}
	return c.write.PatchStatus(ctx, pod, map[string]any{
		"conditions": []corev1.PodCondition{c.write.Timed(podpatch.NotReady(movingReason, "leaving "+from)), c.write.Timed(target)},
	})
}

// endDisrupted ends a pod that runs once and has left its provider, as a kubelet ends one that is deleted (TerminatePod
// in Kubernetes' pkg/kubelet/status).
func (c *Controller) endDisrupted(ctx context.Context, pod *corev1.Pod, from string) error {
	status := map[string]any{"phase": corev1.PodFailed}
	for field, containers := range map[string][]corev1.ContainerStatus{
		"containerStatuses": pod.Status.ContainerStatuses, "initContainerStatuses": pod.Status.InitContainerStatuses,
	} {
		var ended []any
		for i := range containers {
			if containers[i].State.Terminated == nil {
				ended = append(ended, map[string]any{"name": containers[i].Name, "ready": false, "started": false, "state": map[string]any{
					"running": nil, "waiting": nil, "terminated": corev1.ContainerStateTerminated{
						ExitCode: 137, Reason: "ContainerStatusUnknown",
						Message: "The container could not be located when the pod was terminated",
					},
				}})
			}
		}
		if len(ended) > 0 {
			status[field] = ended
		}
	}
	if err := c.write.PatchStatus(ctx, pod, status); err != nil {
		return err
	}
	c.Log.Info("Ended a pod with restartPolicy Never, it is not started elsewhere", "pod", client.ObjectKeyFromObject(pod), "from", from)
	return c.write.Patch(ctx, pod, map[string]any{"annotations": map[string]any{
		v1alpha1.MovingFromAnnotation: nil, v1alpha1.MovingFromProviderAnnotation: nil, v1alpha1.DecisionAnnotation: nil,
		v1alpha1.RemoteNamespaceAnnotation: nil,
	}})
}

// releaseDisrupted has the ShadowPod deleted whose pod its provider has evicted: Liqo creates no pod from it any more,
// and until then the quota of the slice counts it. An eviction on a Node deletes the pod, and its owner replaces it; an
// eviction by the kubelet leaves it Failed. A pod of a consumer is deleted by its virtual kubelet, starting at the
// consumer.
func (c *Controller) releaseDisrupted(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	if c.Guard.Missing() != "" {
		return ctrl.Result{RequeueAfter: admission.Recheck}, nil
	}
	c.Checker.Forget(client.ObjectKeyFromObject(pod))
	owner, target := metav1.GetControllerOf(pod), placement.Condition(pod, corev1.DisruptionTarget)
	deletes := target != nil && target.Reason != corev1.PodReasonTerminationByKubelet && target.Reason != v1alpha1.ReasonEvictionByBroker
	if deletes && owner != nil && owner.Kind != "ShadowPod" {
		c.Log.Info("Deleting a pod that its provider has evicted", "pod", client.ObjectKeyFromObject(pod), "reason", target.Reason)
		return ctrl.Result{}, client.IgnoreNotFound(c.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
	}
	return ctrl.Result{}, c.write.Patch(ctx, pod, map[string]any{
		"labels": map[string]any{v1alpha1.VirtualNodeLabel: nil, v1alpha1.ProviderLabel: nil},
	})
}

// scaleUpDelay returns how long to wait for a pod that is Pending because a cluster autoscaler at its provider adds a
// node for it; 0 if it is not.
func (c *Controller) scaleUpDelay(ctx context.Context, pod *corev1.Pod) time.Duration {
	if c.Clock.Since(c.pendingSince(pod)) > longestScaleUp {
		return 0
	}
	var wait time.Duration
	added, _ := c.eventsOf(ctx, pod, "TriggeredScaleUp") // Without them nothing is waited for.
	for _, at := range added {
		wait = max(wait, scaleUpFor-c.Clock.Since(at))
	}
	return min(wait, scaleUpRecheck)
}

// eventsOf returns the last times of a pod's events with a reason. The virtual kubelet reflects the events of the pod
// and of the ShadowPod at its provider.
func (c *Controller) eventsOf(ctx context.Context, pod *corev1.Pod, reason string) (last []time.Time, err error) {
	var events corev1.EventList
	ofPod := client.MatchingFields{"involvedObject.name": pod.Name}
	err = c.Live.List(ctx, &events, client.InNamespace(pod.Namespace), ofPod, client.Limit(500))
	if err != nil {
		c.Log.V(1).Info("Failed to list the events of a pod", "pod", client.ObjectKeyFromObject(pod), "error", err.Error())
	}
	for i := range events.Items {
		if event := &events.Items[i]; event.Reason == reason && event.InvolvedObject.UID == pod.UID {
			at := event.LastTimestamp.Time
			if event.EventTime.After(at) {
				at = event.EventTime.Time
			}
			last = append(last, at)
		}
	}
	return last, err
}

// unmadeDelay returns how long to wait for a pod that its provider has not created yet, because it creates none at all
// (eviction.Unmade), and closes the slice meanwhile. It is 0 if Liqo's controller there has reported that it could not
// create this one: then the pod is the reason.
func (c *Controller) unmadeDelay(ctx context.Context, pod *corev1.Pod, at scheduler.Place, known state.VirtualNode, rules placement.Rules,
) time.Duration {
	wait := eviction.Unmade(known, rules, c.pendingSince(pod), c.Clock.Now())
	if wait == 0 {
		return 0
	}
	refused, err := c.eventsOf(ctx, pod, "FailedCreatePod") // Liqo's EventReasonFailedCreatePod.
	if err != nil || slices.ContainsFunc(refused, v1alpha1.AssignedAt(pod).Before) {
		return 0
	}
	c.State.ObserveNotMade(pod, at, c.ownerOf(ctx, pod))
	return wait
}
