package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
)

// judgeGrants checks that the pods that are assigned to a VirtualNode, and those that are leaving it but still exist
// there, never exceed the grant.
func (r *Record) judgeGrants() (faults []string) {
	for _, p := range r.Providers {
		for _, s := range p.Slices {
			faults = append(faults, r.judgeGrant(p.at(s.VirtualNode), s.Millis, p.presence(s.VirtualNode))...)
		}
	}
	return faults
}

// judgeGrant checks one VirtualNode. The argument present is when its ShadowPods existed.
func (r *Record) judgeGrant(at place, granted int64, present presence) (faults []string) {
	latest := map[types.UID]*corev1.Pod{}
	for _, c := range r.Home.Pods {
		pod := c.Object().(*corev1.Pod)
		if latest[pod.UID] = pod; c.After == nil {
			delete(latest, pod.UID)
		}
		if assignedTo(c.After) != at || assignedTo(c.Before) == at {
			continue // Not a new assignment to this VirtualNode.
		}
		sum, names := int64(0), []string{}
		for uid, other := range latest {
			if assignedTo(other) == at || placeOf(other) == at && present.at(uid, c.At) {
				sum += millisOf(&other.Spec)
				names = append(names, other.Name)
			}
		}
		if sum > granted {
			slices.Sort(names)
			faults = append(faults, fmt.Sprintf("%s takes %s at %s to %s CPUs, which grants %s: %s", pod.Name, at,
				r.at(c.At), cpus(sum), cpus(granted), strings.Join(names, " ")))
		}
	}
	return faults
}

// judgeDrains checks that planned moves disrupt at most a quarter of an application at a time, but at least one pod. It
// is skipped if other faults make pods not Ready, because the broker notices that later.
func (r *Record) judgeDrains() (faults []string) {
	for i := range r.Faults {
		if !slices.Contains(Calm(), r.Faults[i].Kind) {
			return nil
		}
	}
	record := r.Home.Pods
	latest := map[types.UID]*corev1.Pod{}
	left := map[types.UID]bool{} // Pods that were moved and have not been Ready since.
	for _, c := range record {
		pod := c.Object().(*corev1.Pod)
		if providerOf(pod) != "" && isReady(pod) {
			delete(left, pod.UID)
		}
		moves := c.After != nil && providerOf(c.Before) != "" && providerOf(c.After) == ""
		if moves && isReadyBefore(record, c) && pod.Labels["app"] != "" {
			replicas, away := 1, 1
			for uid, other := range latest {
				replica := other.Labels["app"] == pod.Labels["app"] && other.Labels[AloneLabel] == pod.Labels[AloneLabel]
				if uid == pod.UID || !replica || terminal(other) || other.DeletionTimestamp != nil {
					continue
				}
				if replicas++; left[uid] {
					away++
				}
			}
			if away > max(1, replicas/4) {
				faults = append(faults,
					fmt.Sprintf("%s is drained at %s while %d of %d replicas are away", pod.Name, r.at(c.At), away-1, replicas))
			}
		}
		if moves {
			left[pod.UID] = true
		}
		if latest[pod.UID] = pod; c.After == nil {
			delete(latest, pod.UID)
		}
	}
	return faults
}

// isReadyBefore reports whether a pod was Ready before the broker made it not Ready to move it.
func isReadyBefore(record []Change, move Change) bool {
	ready := false
	for _, c := range record {
		if c.Object().GetUID() == move.Object().GetUID() && c.Before != nil && c.At.Before(move.At.Add(-time.Second)) && c.After != nil {
			ready = isReady(c.After.(*corev1.Pod))
		}
	}
	return ready
}

// presence is when a provider had ShadowPods, by the UID of the pod in the broker's cluster.
type presence map[types.UID][]span

// presence returns when the ShadowPods of one VirtualNode existed; of all VirtualNodes for "".
func (p *Provider) presence(virtualNode string) presence {
	all, began := presence{}, map[types.UID]time.Time{}
	for _, c := range p.ShadowPods {
		if virtualNode != "" && originOf(c.Object()) != virtualNode {
			continue
		}
		uid := types.UID(c.Object().GetAnnotations()[PodUID])
		if c.Before == nil {
			began[uid] = c.At
		}
		if c.After == nil {
			all[uid] = append(all[uid], span{began[uid], c.At})
			delete(began, uid)
		}
	}
	for uid, from := range began {
		all[uid] = append(all[uid], span{from, from.Add(time.Hour)})
	}
	return all
}

func (p presence) at(uid types.UID, t time.Time) bool {
	return slices.ContainsFunc(p[uid], func(s span) bool { return !t.Before(s.from) && t.Before(s.to) })
}

// originOf returns the VirtualNode that forwarded a ShadowPod or its pod.
func originOf(o client.Object) string { return o.GetLabels()[forge.LiqoOriginClusterNodeName] }

// Calm returns the kinds of faults in which the broker knows the readiness of each pod.
func Calm() []string {
	return []string{"drain", "cordon", "disable", "leader is killed", "leader is replaced", "provider starts slowly"}
}
