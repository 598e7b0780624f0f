package state

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// presence is the last known state of a pod at its provider.
type presence int

const (
	unseen presence = iota
	// withoutPod means a ShadowPod at most, podThere the pod.
	withoutPod
	podThere
)

// shown reports whether the status of a pod was reported from a pod at its provider, by any virtual kubelet.
func shown(of *corev1.Pod) bool {
	return !isPending(of) && !unmade(of) || len(of.Status.ContainerStatuses) > 0 || len(of.Status.InitContainerStatuses) > 0
}

// unmade reports whether a pod was deleted before its provider was seen to make it: only its phase was written, before
// it was removed. One that was not forwarded is not made.
func unmade(of *corev1.Pod) bool {
	return of.DeletionTimestamp != nil && of.Status.Phase == corev1.PodFailed && of.Status.Reason == "" &&
		len(of.Status.ContainerStatuses)+len(of.Status.InitContainerStatuses) == 0 &&
		of.Annotations[v1alpha1.NotForwardedAnnotation] != v1alpha1.Assignment(placement.AssignedTo(of).VirtualNode, of)
}

// ObserveThere records the answer of a pod's provider that it has the pod, or only a ShadowPod.
func (f *Federation) ObserveThere(of *corev1.Pod, pod bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	p.there, p.goneSince = withoutPod, time.Time{}
	if pod {
		p.there = podThere
		if p.start.unmade {
			p.start.unmade, p.start.pendingAgain = false, f.cfg.Clock.Now()
		}
	}
}

// ObserveNothingThere records that a leaving pod no longer exists at its provider, and returns since when.
func (f *Federation) ObserveNothingThere(of *corev1.Pod) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	if p.goneSince.IsZero() {
		p.goneSince = f.cfg.Clock.Now()
	}
	return p.goneSince
}

// Leaves returns the state of a pod that leaves: since when it no longer exists at its provider, zero if it exists or
// that is not known; and whether the provider last had the pod itself, and not only its ShadowPod.
func (f *Federation) Leaves(uid types.UID) (goneSince time.Time, podSeen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[uid]
	if p == nil {
		return time.Time{}, false
	}
	return p.goneSince, p.there == podThere
}
