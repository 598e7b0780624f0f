package histories

import (
	"errors"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// observe is the kubelet of the provider's node: it reacts to a change of a pod.
func (p *provider) observe(c *change) {
	key := keyOf(c.Object())
	switch {
	case c.After == nil:
	case c.Before == nil:
		uid := c.After.GetUID()
		p.weather.mu.Lock()
		slow := p.slow
		p.weather.mu.Unlock()
		chance := p.weather.draw("sandbox " + key.Name)
		p.soon("start "+key.Name, 100, 1000, func() {
			switch {
			case slow > 0 && chance%2 == 0: // The image takes long to pull.
				p.prepare(key, uid)
			case slow == 0 && chance%4 == 0: // A kubelet writes the status at most once a second, so watchers may miss this.
				p.prepare(key, uid)
				slow = time.Duration(chance>>8%1000) * time.Millisecond
			}
			p.world.after(slow, func() { p.start(key, uid) })
		})
	case c.Before.GetDeletionTimestamp() == nil && c.After.GetDeletionTimestamp() != nil:
		uid := c.After.GetUID()
		p.soon("end "+key.Name, 50, 2500, func() {
			p.stop(key, uid)
			p.soon("remove "+key.Name, 1, 500, func() { p.removePod("kubelet", key, uid) })
		})
	}
}

// removePod removes a pod whose containers have ended.
func (p *provider) removePod(by string, key types.NamespacedName, uid types.UID) {
	_ = p.server.remove(by, podOf(key), ptr.To(int64(0)), &metav1.Preconditions{UID: &uid})
}

// conditionsOf returns the conditions that a kubelet writes for a pod: all of its own each time (generateAPIPodStatus
// in Kubernetes' pkg/kubelet/kubelet_pods.go, and pkg/kubelet/status/generate.go). Conditions of other writers, such as
// DisruptionTarget, stay.
func conditionsOf(pod *corev1.Pod, sandbox, containers corev1.ConditionStatus, reason string) (all []corev1.PodCondition) {
	now := metav1.NewTime(time.Now())
	for _, c := range []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: sandbox},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: containers, Reason: reason},
		{Type: corev1.ContainersReady, Status: containers, Reason: reason},
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	} {
		c.LastTransitionTime = now
		for i := range pod.Status.Conditions {
			if before := &pod.Status.Conditions[i]; before.Type == c.Type && before.Status == c.Status {
				c.LastTransitionTime = before.LastTransitionTime
			}
		}
		all = append(all, c)
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget || strings.HasPrefix(string(c.Type), ownConditions) {
			all = append(all, *c)
		}
	}
	return all
}

// write updates the status of a pod that has not ended.
func (p *provider) write(by string, key types.NamespacedName, uid types.UID, change func(*corev1.Pod) error) bool {
	_, err := p.server.update(by, podOf(key), true, func(fresh object) error {
		pod := fresh.(*corev1.Pod)
		if pod.UID != uid || ended(pod) {
			return errors.New("it is another one, or has ended")
		}
		return change(pod)
	})
	return err == nil
}

var errEnding = errors.New("it is ending")

// prepare creates the sandbox of a pod whose container is started later.
func (p *provider) prepare(key types.NamespacedName, uid types.UID) {
	p.write("kubelet", key, uid, func(pod *corev1.Pod) error {
		if pod.DeletionTimestamp != nil {
			return errEnding
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
		}}}
		pod.Status.Conditions = conditionsOf(pod, corev1.ConditionTrue, corev1.ConditionFalse, "ContainersNotReady")
		return nil
	})
}

func (p *provider) start(key types.NamespacedName, uid types.UID) {
	seconds := ""
	if !p.write("kubelet", key, uid, func(pod *corev1.Pod) error {
		if pod.DeletionTimestamp != nil {
			return errEnding
		}
		seconds = pod.Annotations[durationAnnotation]
		now := metav1.NewTime(time.Now())
		pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: true, State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: now},
		}}}
		pod.Status.Conditions = conditionsOf(pod, corev1.ConditionTrue, corev1.ConditionTrue, "")
		return nil
	}) {
		return
	}
	if n, err := strconv.Atoi(seconds); err == nil {
		p.world.after(time.Duration(n)*time.Second, func() {
			p.write("kubelet", key, uid, func(pod *corev1.Pod) error {
				if pod.DeletionTimestamp != nil {
					return errEnding
				}
				end(pod, corev1.PodSucceeded, "PodCompleted", 0)
				return nil
			})
		})
	}
}

// end sets the status of a pod whose container has ended.
func end(pod *corev1.Pod, phase corev1.PodPhase, reason string, code int32) {
	pod.Status.Phase = phase
	pod.Status.Conditions = conditionsOf(pod, corev1.ConditionFalse, corev1.ConditionFalse, reason)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason},
	}}}
}

// stop ends the container of a terminating pod, even if it was never started (TerminatePod in Kubernetes'
// pkg/kubelet/status/status_manager.go). The kubelet writes this status before it removes the pod.
func (p *provider) stop(key types.NamespacedName, uid types.UID) {
	p.write("kubelet", key, uid, func(pod *corev1.Pod) error {
		if pod.DeletionTimestamp == nil {
			return errors.New("it is not being deleted")
		}
		end(pod, corev1.PodFailed, "PodFailed", 143)
		return nil
	})
}

// disrupt sets the condition DisruptionTarget of a pod that its provider ends.
func disrupt(pod *corev1.Pod, reason string) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(time.Now()),
	})
}

// drain evicts the pods of the provider's node, one after the other. The API server writes the reason
// (pkg/registry/core/pod/storage/eviction.go in Kubernetes), and the kubelet ends the pods.
func (p *provider) drain() {
	for i, o := range p.server.all(typeOf[corev1.Pod]()) {
		p.world.after(time.Duration(i)*200*time.Millisecond, func() {
			key, uid := keyOf(o), o.GetUID()
			p.write("eviction", key, uid, func(pod *corev1.Pod) error {
				if pod.DeletionTimestamp != nil {
					return errEnding
				}
				disrupt(pod, "EvictionByEvictionAPI")
				return nil
			})
			_ = p.server.remove("eviction", podOf(key), ptr.To(int64(2)), &metav1.Preconditions{UID: &uid})
		})
	}
}

// die removes the pods of a node that died. The garbage collector of pods marks the pods of a deleted node as Failed
// and removes them (markFailedAndDeletePodWithCondition in Kubernetes' pkg/controller/podgc). An administrator who
// deletes them by force, or a controller like Liqo's nodefailure-controller, only removes them; Liqo creates such pods
// again.
func (p *provider) die() {
	marks := p.weather.draw("node dies")%2 == 0
	for _, o := range p.server.all(typeOf[corev1.Pod]()) {
		key, uid := keyOf(o), o.GetUID()
		if marks {
			p.write("podgc", key, uid, func(pod *corev1.Pod) error {
				disrupt(pod, "DeletionByPodGC")
				pod.Status.Phase = corev1.PodFailed // The conditions stay as the kubelet last wrote them.
				return nil
			})
		}
		p.soon("podgc "+key.Name, 2, 30, func() { p.removePod("podgc", key, uid) })
	}
}

// letGo removes the finalizer of a provider's controller from all pods.
func (p *provider) letGo() {
	for _, o := range p.server.all(typeOf[corev1.Pod]()) {
		_, _ = p.server.update("holder", o, false,
			func(fresh object) error { fresh.SetResourceVersion(""); fresh.SetFinalizers(nil); return nil })
	}
}
