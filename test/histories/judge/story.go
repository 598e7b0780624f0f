package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Story returns the history of the pods of a name, one line per change, with the faults and the leaders.
func (r *Record) Story(pod string) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	add := func(at time.Time, format string, args ...any) {
		lines = append(lines, line{at, fmt.Sprintf(format, args...)})
	}
	for i := range r.Faults {
		f := &r.Faults[i]
		add(f.From, "FAULT   %s %s for %s", f.Provider, f.Kind, f.Until.Sub(f.From).Round(time.Millisecond))
		add(f.Until, "FAULT   %s %s is over", f.Provider, f.Kind)
	}
	for i := range r.Home.Pods {
		if c := &r.Home.Pods[i]; c.Object().GetName() == pod {
			add(c.At, "home    %s: %s", c.By, describe(c))
		}
	}
	for i := range r.Home.Leases {
		c := &r.Home.Leases[i]
		if holder := holderOf(c.After); holder != holderOf(c.Before) && c.Object().GetName() == r.Node {
			add(c.At, "LEADER  %s (%s)", c.By, holder)
		}
	}
	for i := range r.Home.ProviderClusters {
		c := &r.Home.ProviderClusters[i]
		if text := reachability(c.After); text != reachability(c.Before) {
			add(c.At, "status  %s: %s", c.Object().GetName(), text)
		}
	}
	for i := range r.Home.Nodes {
		if c := &r.Home.Nodes[i]; c.After != nil && roomOf(c.After) != roomOf(c.Before) {
			add(c.At, "Node    %s: %s", c.By, roomOf(c.After))
		}
	}
	for _, p := range r.Providers {
		for _, c := range slices.Concat(p.Pods, p.ShadowPods) {
			if c.Object().GetName() == pod {
				add(c.At, "%-7s %s: %s", p.ID, c.By, describe(&c))
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&text, "%10s %s\n", r.at(l.at), l.text)
	}
	return text.String()
}

// roomOf describes the capacity that a Node shows.
func roomOf(of client.Object) string {
	node, is := of.(*corev1.Node)
	if !is {
		return ""
	}
	return cpus(node.Status.Allocatable.Cpu().MilliValue()) + " CPUs"
}

func holderOf(lease client.Object) string {
	if of, is := lease.(*coordinationv1.Lease); is && of.Spec.HolderIdentity != nil {
		return *of.Spec.HolderIdentity
	}
	return ""
}

func reachability(of client.Object) string {
	pc, is := of.(*v1alpha1.ProviderCluster)
	if !is {
		return ""
	}
	var text []string
	for i := range pc.Status.Conditions {
		c := &pc.Status.Conditions[i]
		text = append(text, c.Type+"="+string(c.Status))
	}
	return strings.Join(text, " ")
}

// describe describes the state of an object after a change.
func describe(c *Change) string {
	verb := "changes"
	switch {
	case c.Before == nil:
		verb = "is created"
	case c.After == nil:
		verb = "is gone"
	}
	shadow, is := c.Object().(*offloadingv1beta1.ShadowPod)
	if is {
		return fmt.Sprintf("ShadowPod %s (%s of %s)", verb, shadow.UID, shadow.Annotations[PodUID])
	}
	pod := c.Object().(*corev1.Pod)
	text := []string{fmt.Sprintf("pod %s (%s)", verb, pod.UID), string(pod.Status.Phase)}
	if pod.DeletionTimestamp != nil {
		text = append(text, "terminating")
	}
	if isReady(pod) {
		text = append(text, "ready")
	}
	for _, key := range []string{v1alpha1.VirtualNodeLabel} {
		text = append(text, "at="+pod.Labels[key])
	}
	for _, key := range []string{
		v1alpha1.MovingFromAnnotation, v1alpha1.ReleasedAnnotation, v1alpha1.UnreachableAnnotation, v1alpha1.DecisionAnnotation, PodUID,
	} {
		if value := pod.Annotations[key]; value != "" {
			text = append(text, strings.TrimPrefix(key, "brokering.liqo.io/")+"="+value)
		}
	}
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; condition.Type != corev1.PodReady {
			text = append(text,
				strings.TrimPrefix(string(condition.Type), "brokering.liqo.io/")+"="+string(condition.Status)+" "+condition.Message)
		}
	}
	return strings.Join(text, " ")
}
