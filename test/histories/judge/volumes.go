package judge

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// ClaimLabel is on pods with the name of the PersistentVolumeClaim that they use. Its volume is kept.
const ClaimLabel = "claim"

// judgeVolumes checks that no claim was used at two providers, and that no pod leaves its volume for nothing.
func (r *Record) judgeVolumes() (faults []string) {
	claims := map[types.UID]string{}
	for _, c := range r.Home.Pods {
		if claim := c.Object().GetLabels()[ClaimLabel]; claim != "" {
			claims[c.Object().GetUID()] = claim
		}
	}
	used := map[string]string{}
	for _, p := range r.Providers {
		for _, c := range slices.Concat(p.ShadowPods, p.Pods) {
			claim := claims[types.UID(c.Object().GetAnnotations()[PodUID])]
			switch {
			case claim == "":
			case used[claim] == "":
				used[claim] = p.ID
			case used[claim] != p.ID:
				faults = append(faults, fmt.Sprintf("%s uses claim %s at %s, whose volume is at %s", c.Object().GetName(), claim,
					p.ID, used[claim]))
			}
		}
	}
	for _, c := range r.Home.Pods {
		faults = append(faults, r.judgeLeavesVolume(c)...)
	}
	return faults
}

// judgeLeavesVolume checks that a pod leaves the provider of its volume only if it does not run there: the volume was not
// made yet, the pod was refused, or its VirtualNode is gone. A provider with several slices may take it at another one.
func (r *Record) judgeLeavesVolume(c Change) []string {
	if c.Before == nil || c.After == nil || c.Object().GetLabels()[ClaimLabel] == "" {
		return nil
	}
	before, after := c.Before.(*corev1.Pod), c.After.(*corev1.Pod)
	from := assignedTo(before)
	if from == (place{}) || !r.isMade(before, from.provider, c.At) || assignedTo(after) != (place{}) ||
		terminal(before) || terminal(after) || after.DeletionTimestamp != nil ||
		isRefused(before, from.virtualNode) || r.parted(from.provider, from.virtualNode, c.At) || r.slicesOf(from.provider) > 1 {
		return nil
	}
	return []string{fmt.Sprintf("%s leaves its volume at %s at %s by %s: %s", before.Name, from, r.at(c.At), c.By,
		after.Annotations[v1alpha1.DecisionAnnotation])}
}

// isMade reports whether the volume of a pod's claim was made at a provider before a time.
func (r *Record) isMade(pod *corev1.Pod, provider string, before time.Time) bool {
	return slices.ContainsFunc(r.Home.Volumes, func(c Change) bool {
		return c.After != nil && c.At.Before(before) && isVolumeOf(c.After, pod) &&
			c.After.GetAnnotations()[v1alpha1.MadeAtAnnotation] == provider
	})
}

func isVolumeOf(volume client.Object, pod *corev1.Pod) bool {
	ref := volume.(*corev1.PersistentVolume).Spec.ClaimRef
	return ref != nil && ref.Name == pod.Labels[ClaimLabel]
}

func (r *Record) slicesOf(provider string) int {
	for _, p := range r.Providers {
		if p.ID == provider {
			return len(p.Slices)
		}
	}
	return 0
}

// volumeAt returns the provider where the volume of a pod's claim is at the end; "" if it is nowhere, or the pod uses none.
func (r *Record) volumeAt(pod *corev1.Pod) string {
	for _, o := range latest(r.Home.Volumes) {
		if isVolumeOf(o, pod) {
			return o.GetLabels()[v1alpha1.ProviderLabel]
		}
	}
	return ""
}
