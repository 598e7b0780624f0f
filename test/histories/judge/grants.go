package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// judgeGrants checks that what is assigned to a VirtualNode, and what is leaving it and still there, never exceeds the
// grant.
func (r *Record) judgeGrants() (faults []string) {
	record := r.Home.Pods
	for _, p := range r.Providers {
		present := p.presence()
		latest := map[types.UID]*corev1.Pod{}
		for _, c := range record {
			pod := c.Object().(*corev1.Pod)
			if latest[pod.UID] = pod; c.After == nil {
				delete(latest, pod.UID)
			}
			if c.After == nil || pod.Labels[v1alpha1.VirtualNodeLabel] != p.VirtualNode ||
				c.Before != nil && c.Before.GetLabels()[v1alpha1.VirtualNodeLabel] == p.VirtualNode {
				continue // It was not assigned there just now.
			}
			sum, names := int64(0), []string{}
			for uid, other := range latest {
				assigned := other.Labels[v1alpha1.VirtualNodeLabel] == p.VirtualNode
				if assigned || placeOf(other) == p.VirtualNode && present.at(uid, c.At) {
					sum += millisOf(&other.Spec)
					names = append(names, other.Name)
				}
			}
			if sum > p.Millis {
				slices.Sort(names)
				faults = append(faults, fmt.Sprintf("%s takes %s at %s to %s CPUs, which grants %s: %s", pod.Name, p.VirtualNode,
					r.at(c.At), cpus(sum), cpus(p.Millis), strings.Join(names, " ")))
			}
		}
	}
	return faults
}

// judgeDrains checks that planned moves take at most a quarter of an application at a time, at least one pod. It is not
// judged when other faults make pods not Ready: the broker notices that later.
func (r *Record) judgeDrains() (faults []string) {
	for i := range r.Faults {
		if !slices.Contains(Calm(), r.Faults[i].Kind) {
			return nil
		}
	}
	record := r.Home.Pods
	latest := map[types.UID]*corev1.Pod{}
	left := map[types.UID]bool{} // Those that were moved, and have not been Ready since.
	for _, c := range record {
		pod := c.Object().(*corev1.Pod)
		if providerOf(pod) != "" && isReady(pod) {
			delete(left, pod.UID)
		}
		moves := c.After != nil && providerOf(c.Before) != "" && providerOf(c.After) == ""
		if moves && isReadyBefore(record, c) && pod.Labels["app"] != "" {
			replicas, away := 1, 1
			for uid, other := range latest {
				if uid == pod.UID || other.Labels["app"] != pod.Labels["app"] || terminal(other) || other.DeletionTimestamp != nil {
					continue
				}
				if replicas++; left[uid] {
					away++
				}
			}
			if away > max(1, replicas/4) {
				faults = append(faults, fmt.Sprintf("%s is drained at %s while %d of %d replicas are away", pod.Name, r.at(c.At), away-1, replicas))
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

// presence is when a provider had ShadowPods, by the UIDs in the broker's cluster.
type presence map[types.UID][]span

func (p *Provider) presence() presence {
	all, began := presence{}, map[types.UID]time.Time{}
	for _, c := range p.ShadowPods {
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

// Calm are the kinds of faults in which the broker knows of each pod whether it is Ready.
func Calm() []string {
	return []string{"drain", "cordon", "disable", "leader is killed", "provider starts slowly"}
}
