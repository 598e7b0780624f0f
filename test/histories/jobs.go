package histories

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// runJobs is the controller of Jobs with a podFailurePolicy. It counts a pod and removes its finalizer once the pod has
// ended. It waits for a terminating pod that has not ended (getNewFinishedPods in Kubernetes' pkg/controller/job).
func (w *world) runJobs() {
	seen := 0
	for {
		changes, more := w.home.since(typeOf[corev1.Pod](), seen)
		seen += len(changes)
		for i := range changes {
			pod, is := changes[i].After.(*corev1.Pod)
			if is && pod.DeletionTimestamp != nil && pod.Spec.NodeName == "" && !ended(pod) {
				// This is the garbage collector of pods (gcUnscheduledTerminating in Kubernetes' pkg/controller/podgc).
				w.later(20*time.Second, func() {
					_, _ = w.home.update("podgc", pod, true, func(fresh object) error {
						fresh.SetResourceVersion("")
						if fresh.GetUID() != pod.UID {
							return errNotLeaving
						}
						fresh.(*corev1.Pod).Status.Phase = corev1.PodFailed
						return nil
					})
				})
			}
			if !is || !ended(pod) || !slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) {
				continue
			}
			w.later(300*time.Millisecond, func() {
				_, _ = w.home.update("job-controller", pod, false, func(fresh object) error {
					fresh.SetResourceVersion("")
					if fresh.GetUID() != pod.UID {
						return errNotLeaving
					}
					fresh.SetFinalizers(nil)
					return nil
				})
			})
		}
		select {
		case <-more:
		case <-w.ctx.Done():
			return
		}
	}
}
