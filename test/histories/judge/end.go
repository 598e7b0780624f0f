package judge

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Unsettled returns everything that is wrong although all faults are over; "" if nothing is.
func (r *Record) Unsettled() string {
	var faults []string
	pods := latestPods(r.Home.Pods)
	locals := map[types.UID]*corev1.Pod{}
	there := map[types.UID]*corev1.Pod{}
	for _, pod := range pods {
		locals[pod.UID] = pod
	}
	for _, p := range r.Providers {
		shadows := map[types.NamespacedName]bool{}
		for _, o := range latest(p.ShadowPods) {
			shadows[client.ObjectKeyFromObject(o)] = true
			local := locals[types.UID(o.GetAnnotations()[PodUID])]
			if local == nil || assignedTo(local) != p.at(originOf(o)) {
				faults = append(faults, fmt.Sprintf("%s has a ShadowPod %s of a pod that is not there", p.ID, o.GetName()))
			}
		}
		for _, pod := range latestPods(p.Pods) {
			local := types.UID(pod.Annotations[PodUID])
			if !shadows[client.ObjectKeyFromObject(pod)] {
				faults = append(faults, fmt.Sprintf("%s has a pod %s without a ShadowPod", p.ID, pod.Name))
			} else if of := locals[local]; of != nil && assignedTo(of) == p.at(originOf(pod)) {
				there[local] = pod
			}
		}
		faults = append(faults, r.judgeStatus(p, pods)...)
	}
	for _, pod := range pods {
		if fault := r.judgePod(pod, there[pod.UID], pods); fault != "" {
			faults = append(faults, pod.Name+" "+fault)
		}
	}
	for _, c := range r.Consumers {
		faults = append(faults, c.judgeShown(pods)...)
	}
	if fault := r.judgeRoom(pods); fault != "" {
		faults = append(faults, fault)
	}
	return strings.Join(faults, "; ")
}

// WrittenSince returns the writes of pods and ShadowPods since an earlier record of the same world; "" if there were
// none. Leases, the heartbeat of the Node and the status of providers do not count: they are written continually.
func (r *Record) WrittenSince(before *Record) string {
	var all []string
	add := func(where string, now, then []Change) {
		for _, c := range now[len(then):] {
			all = append(all, fmt.Sprintf("%s of %s at %s by %s", c.Object().GetName(), where, r.at(c.At), c.By))
		}
	}
	add("the pods", r.Home.Pods, before.Home.Pods)
	for i, p := range r.Providers {
		add("the pods of "+p.ID, p.Pods, before.Providers[i].Pods)
		add("the ShadowPods of "+p.ID, p.ShadowPods, before.Providers[i].ShadowPods)
	}
	return strings.Join(all[:min(len(all), 10)], "; ")
}

// judgePod returns the fault of one pod at the end. The argument there is its remote pod, or nil.
func (r *Record) judgePod(pod, there *corev1.Pod, pods []*corev1.Pod) string {
	at, none := assignedTo(pod), place{}
	switch {
	case pod.DeletionTimestamp != nil:
		return "is being deleted"
	case r.is(Disrupted) && terminal(pod) && at != none && isTrue(pod, corev1.DisruptionTarget):
		return "was ended by " + at.String() + ", and holds its room there"
	case terminal(pod):
		return ""
	case at == none && pod.Annotations[v1alpha1.MovingFromAnnotation] != "":
		return "is moving"
	case pod.Spec.NodeName == "":
		return r.judgeUnbound(pod, pods)
	case at == none:
		return r.judgeWaiting(pod, pods)
	case there == nil:
		return "is not at " + at.String()
	case there.Status.Phase != corev1.PodRunning || pod.Status.Phase != corev1.PodRunning || !isReady(pod):
		return fmt.Sprintf("is shown %s (ready: %t) and is %s at %s", pod.Status.Phase, isReady(pod), there.Status.Phase, at)
	}
	return ""
}

// judgeWaiting returns the fault of a waiting pod: a provider has capacity for it, no pod that it must not be with, and its
// volume, or it has no reason.
func (r *Record) judgeWaiting(pod *corev1.Pod, pods []*corev1.Pod) string {
	for at, granted := range r.granted() {
		if left := free(at, granted, pods); left >= millisOf(&pod.Spec) && beside(pod, at.provider, pods) == nil &&
			slices.Contains([]string{"", at.provider}, r.volumeAt(pod)) {
			return fmt.Sprintf("waits, and %s has %s CPUs free", at, cpus(left))
		}
	}
	if reasonOf(pod) == "" {
		return "waits without a reason"
	}
	return ""
}

// judgeUnbound returns the fault of a pod that kube-scheduler has not bound: the Node has capacity for it.
func (r *Record) judgeUnbound(pod *corev1.Pod, pods []*corev1.Pod) string {
	for _, o := range latest(r.Home.Nodes) {
		if free := FreeOnNode(o.(*corev1.Node), pods); o.GetName() == r.Node && free >= millisOf(&pod.Spec) {
			return fmt.Sprintf("is not bound, and the Node has %s CPUs free", cpus(free))
		}
	}
	return ""
}

// Untrue returns the waiting pods whose reason is wrong when everything has settled: the only true reasons are
// insufficient capacity, another pod that the pod must not be with, and its volume at a provider. The broker writes reasons
// later than it decides. The text after a semicolon describes an earlier state.
func (r *Record) Untrue() string {
	var faults []string
	for _, pod := range latestPods(r.Home.Pods) {
		if pod.Spec.NodeName == "" || assignedTo(pod) != (place{}) || terminal(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		now, _, _ := strings.Cut(reasonOf(pod), ";")
		if alone := pod.Labels[AloneLabel] != "" && strings.Contains(now, "anti-affinity to a pod in"); alone {
			continue
		}
		if at := r.volumeAt(pod); at != "" && strings.Contains(now, " is at provider "+at) {
			continue
		}
		if now != "no provider cluster fits: insufficient cpu" {
			faults = append(faults, fmt.Sprintf("%s waits for want of room, and its reason is %q", pod.Name, reasonOf(pod)))
		}
	}
	return strings.Join(faults, "; ")
}

// reasonOf returns why a pod waits, in the words of the broker.
func reasonOf(pod *corev1.Pod) string {
	if c := assignedCondition(pod); c != nil && c.Status == corev1.ConditionFalse {
		return c.Message
	}
	return ""
}

// assignedCondition returns the condition Assigned of a pod; nil if it has none.
func assignedCondition(o client.Object) *corev1.PodCondition {
	pod, is := o.(*corev1.Pod)
	if !is {
		return nil
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1alpha1.ConditionAssigned {
			return c
		}
	}
	return nil
}

// judgeShown returns the consumer's pods that, at the end, differ from their copies in the broker's cluster, or exist
// in only one of the two.
func (c *Consumer) judgeShown(home []*corev1.Pod) (faults []string) {
	type at struct{ namespace, name string }
	copies := map[at]*corev1.Pod{}
	for _, pod := range home {
		copies[at{pod.Namespace, pod.Name}] = pod
	}
	own := map[at]bool{}
	for _, pod := range latestPods(c.Pods) {
		key := at{pod.Namespace + "-" + c.ID, pod.Name} // Liqo's default names of namespaces.
		own[key] = true
		switch there := copies[key]; {
		case pod.DeletionTimestamp != nil:
			faults = append(faults, fmt.Sprintf("%s is being deleted in %s", pod.Name, c.ID))
		case there == nil && !terminal(pod):
			faults = append(faults, fmt.Sprintf("%s of %s is not in the broker's cluster", pod.Name, c.ID))
		case there != nil && (there.Status.Phase != pod.Status.Phase || isReady(there) != isReady(pod)):
			faults = append(faults, fmt.Sprintf("%s is shown %s (ready: %t) in %s and is %s (ready: %t)", pod.Name,
				pod.Status.Phase, isReady(pod), c.ID, there.Status.Phase, isReady(there)))
		}
	}
	for key := range copies {
		if strings.HasSuffix(key.namespace, "-"+c.ID) && !own[key] {
			faults = append(faults, fmt.Sprintf("the broker's cluster has a pod %s that is not in %s", key.name, c.ID))
		}
	}
	slices.Sort(faults)
	return faults
}

// judgeStatus returns the faults in the status of a ProviderCluster at the end.
func (r *Record) judgeStatus(p *Provider, pods []*corev1.Pod) (faults []string) {
	var status *v1alpha1.ProviderClusterStatus
	for _, o := range latest(r.Home.ProviderClusters) {
		if o.GetName() == p.ID {
			status = &o.(*v1alpha1.ProviderCluster).Status
		}
	}
	if status == nil {
		return []string{"there is no ProviderCluster " + p.ID}
	}
	there := int32(0)
	for _, pod := range pods {
		if placeOf(pod).provider == p.ID && !terminal(pod) {
			there++
		}
	}
	if status.Pods != there {
		faults = append(faults, fmt.Sprintf("ProviderCluster %s shows %d pods and has %d", p.ID, status.Pods, there))
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Status != "True" && c.Type != v1alpha1.ProviderDrained && c.Type != v1alpha1.ProviderStartsPods {
			faults = append(faults, fmt.Sprintf("ProviderCluster %s shows %s=%s: %s", p.ID, c.Type, c.Status, c.Message))
		}
	}
	for i := range status.VirtualNodes {
		vn := &status.VirtualNodes[i]
		for _, pod := range pods {
			if vn.Closed != nil && assignedTo(pod) == p.at(vn.Name) && v1alpha1.AssignedAt(pod).After(vn.Closed.Since.Time) &&
				isTaken(pod) {
				faults = append(faults, fmt.Sprintf("ProviderCluster %s shows %s as closed since %s, and %s has started there",
					p.ID, vn.Name, r.at(vn.Closed.Since.Time), pod.Name))
			}
		}
	}
	return faults
}

// judgeRoom returns the fault in the capacity that the Node shows at the end; "" if there is none.
func (r *Record) judgeRoom(pods []*corev1.Pod) string {
	granted := int64(0)
	for _, millis := range r.granted() {
		granted += millis
	}
	for _, pod := range pods {
		switch {
		case terminal(pod) && placeOf(pod) != (place{}):
			granted -= millisOf(&pod.Spec) // kube-scheduler does not count the pod, the quota does.
		case !terminal(pod) && placeOf(pod) == (place{}) && pod.Spec.NodeName == r.Node:
			granted += millisOf(&pod.Spec) // kube-scheduler counts the pod although it is not assigned.
		}
	}
	for _, o := range latest(r.Home.Nodes) {
		node := o.(*corev1.Node)
		if shown := node.Status.Allocatable.Cpu().MilliValue(); node.Name == r.Node && shown != granted {
			return fmt.Sprintf("the Node shows %s CPUs of %s", cpus(shown), cpus(granted))
		}
	}
	return ""
}
