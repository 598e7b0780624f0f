package histories

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// story tells what happened to a pod, one line for each change, with the faults and the leaders.
func (o *outcome) story(pod string) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	add := func(at time.Time, format string, args ...any) {
		lines = append(lines, line{at, fmt.Sprintf(format, args...)})
	}
	for _, f := range o.history.Faults {
		add(o.began.Add(f.At), "FAULT   p%d %s for %s", f.Provider, f.Kind, f.For)
		add(o.began.Add(f.until()), "FAULT   p%d %s is over", f.Provider, f.Kind)
	}
	pods, _ := o.world.home.since(typeOf[corev1.Pod](), 0)
	for _, c := range pods {
		if c.object().GetName() == pod {
			add(c.at, "home    %s: %s", c.by, describe(&c))
		}
	}
	leases, _ := o.world.home.since(typeOf[coordinationv1.Lease](), 0)
	for _, c := range leases {
		if holder := holderOf(c.after); holder != holderOf(c.before) && c.object().GetNamespace() == brokerNamespace {
			add(c.at, "LEADER  %s (%s)", c.by, holder)
		}
	}
	statuses, _ := o.world.home.since(typeOf[v1alpha1.ProviderCluster](), 0)
	for _, c := range statuses {
		if text := reachability(c.after); text != reachability(c.before) {
			add(c.at, "status  %s: %s", c.object().GetName(), text)
		}
	}
	for _, p := range o.world.providers {
		remote, _ := p.server.since(typeOf[corev1.Pod](), 0)
		shadows, _ := p.server.since(typeOf[offloadingv1beta1.ShadowPod](), 0)
		for _, c := range slices.Concat(remote, shadows) {
			if c.object().GetName() == pod {
				add(c.at, "%-7s %s: %s", p.id, c.by, describe(&c))
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&text, "%10s %s\n", o.at(l.at), l.text)
	}
	return text.String()
}

func holderOf(lease object) string {
	if of, is := lease.(*coordinationv1.Lease); is && of.Spec.HolderIdentity != nil {
		return *of.Spec.HolderIdentity
	}
	return ""
}

func reachability(of object) string {
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

// describe tells what an object is after a change.
func describe(c *change) string {
	verb := "changes"
	switch {
	case c.before == nil:
		verb = "is created"
	case c.after == nil:
		verb = "is gone"
	}
	shadow, is := c.object().(*offloadingv1beta1.ShadowPod)
	if is {
		return fmt.Sprintf("ShadowPod %s (%s of %s)", verb, shadow.UID, shadow.Annotations[localUID])
	}
	pod := c.object().(*corev1.Pod)
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
	for _, key := range []string{v1alpha1.MovingFromAnnotation, v1alpha1.ReleasedAnnotation, v1alpha1.UnreachableAnnotation, v1alpha1.DecisionAnnotation, localUID} {
		if value := pod.Annotations[key]; value != "" {
			text = append(text, strings.TrimPrefix(key, "brokering.liqo.io/")+"="+value)
		}
	}
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; condition.Type != corev1.PodReady {
			text = append(text, strings.TrimPrefix(string(condition.Type), "brokering.liqo.io/")+"="+string(condition.Status)+" "+condition.Message)
		}
	}
	return strings.Join(text, " ")
}

// stories tells those of all pods.
func (o *outcome) stories() string {
	var text strings.Builder
	for i := range o.history.Pods {
		name := o.history.Pods[i].Name
		fmt.Fprintf(&text, "%s:\n%s", name, o.story(name))
	}
	return text.String()
}
