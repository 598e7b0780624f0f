package judge

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AloneLabel is on pods of which no two may be assigned to one provider, by an anti-affinity.
const AloneLabel = "alone"

// judgeAlone checks that no pod is assigned to the provider of another pod that it must not be with.
func (r *Record) judgeAlone() (faults []string) {
	latest := map[types.UID]*corev1.Pod{}
	for _, c := range r.Home.Pods {
		pod := c.Object().(*corev1.Pod)
		if c.After == nil {
			delete(latest, pod.UID)
			continue
		}
		if to := assignedTo(pod); to != (place{}) && to != assignedTo(c.Before) {
			if other := beside(pod, to.provider, slices.Collect(maps.Values(latest))); other != nil {
				faults = append(faults,
					fmt.Sprintf("%s is assigned to %s at %s, where %s is", pod.Name, to.provider, r.at(c.At), other.Name))
			}
		}
		latest[pod.UID] = pod
	}
	return faults
}

// beside returns one of the pods that is assigned to a provider and that the given pod must not be with; nil if there is
// none.
func beside(pod *corev1.Pod, provider string, pods []*corev1.Pod) *corev1.Pod {
	for _, other := range pods {
		alone := pod.Labels[AloneLabel] != "" && other.Labels[AloneLabel] != ""
		if alone && other.UID != pod.UID && assignedTo(other).provider == provider && !terminal(other) {
			return other
		}
	}
	return nil
}
