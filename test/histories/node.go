package histories

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/node"
)

// runNode writes the Node as virtual-kubelet's node controller does, which leaves a goroutine behind when it ends: what its provider
// reports while nobody reads any more (NotifyNodeStatus in its node/node.go, v1.11.0) waits in a bubble for ever.
func runNode(ctx context.Context, n *node.Node, c *cachedClient) error {
	latest := make(chan *corev1.Node, 1)
	n.NotifyNodeStatus(ctx, func(fresh *corev1.Node) {
		select {
		case <-latest: // It was not written yet.
		default:
		}
		latest <- fresh
	})
	again := time.NewTicker(time.Minute) // statusInterval in its node/node.go.
	defer again.Stop()
	var fresh *corev1.Node
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		case fresh = <-latest:
		}
		if fresh != nil {
			_ = writeNode(ctx, c, fresh.DeepCopy())
		}
	}
}

func writeNode(ctx context.Context, c *cachedClient, fresh *corev1.Node) error {
	status := fresh.Status
	err := c.write(ctx, "patch", fresh, func() (client.Object, error) {
		return c.live.server.update(c.live.process.name, fresh, true, func(o client.Object) error {
			o.(*corev1.Node).Status = status
			return nil
		})
	})
	if kerrors.IsNotFound(err) {
		err = c.Create(ctx, fresh)
	}
	return err
}

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
