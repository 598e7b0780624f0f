package histories

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// judgeNode checks that the broker's Node is Ready whatever providers do, and that kube-scheduler never finds less on it than what
// is assigned: what is free elsewhere would be hidden.
func (o *outcome) judgeNode() (faults []string) {
	record, _ := o.world.home.since(typeOf[corev1.Node](), 0)
	pods := o.localPods()
	for _, c := range record {
		if c.after == nil {
			continue
		}
		node := c.after.(*corev1.Node)
		for i := range node.Status.Conditions {
			if ready := &node.Status.Conditions[i]; ready.Type == corev1.NodeReady && ready.Status != corev1.ConditionTrue {
				faults = append(faults, fmt.Sprintf("the Node is not Ready at %s: %s", o.at(c.at), ready.Message))
			}
		}
		assigned := 0
		for _, uid := range sortedKeys(pods) {
			assigned += o.assignedFor(pods[uid], c)
		}
		if allocatable := int(node.Status.Allocatable.Cpu().Value()); allocatable < assigned {
			faults = append(faults, fmt.Sprintf("the Node shows %d CPUs at %s, of which %d are assigned", allocatable, o.at(c.at), assigned))
		}
	}
	return faults
}

// assignedFor returns the CPUs of a pod that was assigned when the Node was written, and had been for longer than the broker takes to notice; 0
// if it was not.
func (o *outcome) assignedFor(record []change, written change) int {
	cpus := 0
	for _, c := range record {
		if c.at.After(written.at) {
			break
		}
		switch pod := c.object().(*corev1.Pod); {
		case c.after == nil || terminal(pod) || pod.DeletionTimestamp != nil || pod.Labels[v1alpha1.VirtualNodeLabel] == "":
			cpus = 0
		case c.at.Before(written.at.Add(-noticed)):
			cpus = cpusOf(&pod.Spec)
		}
	}
	return cpus
}

// judgeRoom returns what is wrong about the room that the Node shows at the end; "" if nothing is.
func (o *outcome) judgeRoom() string {
	found, err := o.world.home.find(typeOf[corev1.Node](), types.NamespacedName{Name: brokerNode})
	if err != nil {
		return err.Error()
	}
	granted := 0
	for _, p := range o.world.providers {
		granted += p.cpus
	}
	for _, obj := range o.world.home.all(typeOf[corev1.Pod]()) {
		if pod := obj.(*corev1.Pod); terminal(pod) && placeOf(pod) != "" {
			granted -= cpusOf(&pod.Spec) // kube-scheduler does not count it, the quota does.
		}
	}
	if shown := int(found.(*corev1.Node).Status.Allocatable.Cpu().Value()); shown != granted {
		return fmt.Sprintf("the Node shows %d CPUs of %d", shown, granted)
	}
	return ""
}
