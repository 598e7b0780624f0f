package state

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// Presence is the last known state of a pod at its provider.
type Presence int

// The states of a pod at its provider.
const (
	unseen Presence = iota
	// Gone means neither the pod nor its ShadowPod, of a pod that leaves: none appears any more.
	Gone
	// WithoutPod means a ShadowPod at most.
	WithoutPod
	// PodThere means the pod.
	PodThere
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

// ObservePresence records the answer of a pod's provider. It returns since when the pod is Gone there; zero if it is
// not.
func (f *Federation) ObservePresence(of *corev1.Pod, there Presence) (goneSince time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	if there == Gone {
		if p.goneSince.IsZero() {
			p.goneSince = f.cfg.Clock.Now()
		}
		return p.goneSince
	}
	p.there, p.goneSince = there, time.Time{}
	if there == PodThere && p.start.unmade {
		p.start.unmade, p.start.pendingAgain = false, f.cfg.Clock.Now()
	}
	return time.Time{}
}
