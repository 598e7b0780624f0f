package judge

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// nodeGrace is after how long Kubernetes marks a Node as not Ready that no broker updates: at least 40 s, 50 s since
// 1.32 (--node-monitor-grace-period of kube-controller-manager).
const nodeGrace = 40 * time.Second

// judgeNode checks that the broker's Node is Ready whatever happens to providers, as long as a broker runs. It also
// checks that the Node never shows kube-scheduler less capacity than is assigned: that would hide free capacity of
// other providers.
func (r *Record) judgeNode() (faults []string) {
	pods := r.localPods()
	faults = r.judgeRestored()
	for _, c := range r.Home.Nodes {
		if c.After == nil || c.After.GetName() != r.Node {
			continue
		}
		node := c.After.(*corev1.Node)
		for i := range node.Status.Conditions {
			ready := &node.Status.Conditions[i]
			if ready.Type == corev1.NodeReady && ready.Status != corev1.ConditionTrue && !r.unattended(c.At) {
				faults = append(faults, fmt.Sprintf("the Node is not Ready at %s: %s", r.at(c.At), ready.Message))
			}
		}
		assigned := int64(0)
		for _, uid := range sortedKeys(pods) {
			assigned += r.assignedFor(pods[uid], c)
		}
		if allocatable := node.Status.Allocatable.Cpu().MilliValue(); allocatable < assigned {
			faults = append(faults,
				fmt.Sprintf("the Node shows %s CPUs at %s, of which %s are assigned", cpus(allocatable), r.at(c.At), cpus(assigned)))
		}
	}
	return faults
}

// restored is how long a broker may take to recreate its deleted Node: kube-controller-manager deletes its pods after
// 40 s.
const restored = 15 * time.Second

// judgeRestored checks that a deleted Node is recreated at once and unchanged.
func (r *Record) judgeRestored() (faults []string) {
	gone := Change{}
	if !r.is(Restored) {
		return nil
	}
	for _, c := range r.Home.Nodes {
		if c.Object().GetName() != r.Node {
			continue
		}
		if c.After == nil {
			gone = c
			continue
		}
		if c.Before == nil && gone.Before != nil {
			was, is := gone.Before.(*corev1.Node), c.After.(*corev1.Node)
			if was.Spec.Unschedulable != is.Spec.Unschedulable {
				faults = append(faults, fmt.Sprintf("the Node is made again at %s, cordoned: %t, and was cordoned: %t",
					r.at(c.At), is.Spec.Unschedulable, was.Spec.Unschedulable))
			}
			if late := c.At.Sub(gone.At); late > restored && !r.disturbed(gone.At, c.At) {
				faults = append(faults, fmt.Sprintf("the Node is made again at %s, %s after it was deleted", r.at(c.At), late))
			}
			gone = Change{}
		}
	}
	if gone.Before != nil {
		faults = append(faults, fmt.Sprintf("the Node was deleted at %s, and is not made again", r.at(gone.At)))
	}
	return faults
}

// disturbed reports whether the broker or its API server was unavailable, so that the broker could not act at once.
func (r *Record) disturbed(from, to time.Time) bool {
	kinds := append([]string{"leader is killed", "leader is replaced", "leader stops", "home's watches lag"}, homeAway()...)
	return slices.ContainsFunc(r.Faults, func(f Fault) bool {
		return slices.Contains(kinds, f.Kind) && f.From.Before(to) && f.Until.After(from.Add(-r.Times.Noticed))
	})
}

// FreeOnNode returns how much capacity, in thousandths of a CPU, kube-scheduler finds free on a Node with these pods.
func FreeOnNode(node *corev1.Node, pods []*corev1.Pod) (millis int64) {
	millis = node.Status.Allocatable.Cpu().MilliValue()
	for _, pod := range pods {
		if pod.Spec.NodeName == node.Name && !terminal(pod) {
			millis -= millisOf(&pod.Spec)
		}
	}
	return millis
}

// unattended reports whether no broker ran for so long that Kubernetes could mark the Node as lost.
func (r *Record) unattended(at time.Time) bool {
	return slices.ContainsFunc(r.Faults, func(f Fault) bool {
		return f.Kind == "all brokers are away for long" && at.After(f.From.Add(nodeGrace)) && at.Before(f.Until.Add(r.Times.Noticed))
	})
}

// assignedFor returns the CPU request of a pod that was assigned when the Node was written, and had been for longer
// than the broker takes to notice; 0 otherwise.
func (r *Record) assignedFor(record []Change, written Change) (millis int64) {
	for _, c := range record {
		if c.At.After(written.At) {
			break
		}
		switch pod := c.Object().(*corev1.Pod); {
		case c.After == nil || terminal(pod) || pod.DeletionTimestamp != nil || pod.Labels[v1alpha1.VirtualNodeLabel] == "":
			millis = 0
		case c.At.Before(written.At.Add(-r.Times.Noticed)):
			millis = millisOf(&pod.Spec)
		}
	}
	return millis
}
