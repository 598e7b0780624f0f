package judge

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// longestDelay is the longest delay of a retry, in multiples of RefusalMemory (docs/broker.md, "Moving").
const longestDelay = 6

// tried counts the assignments of a pod to one VirtualNode that started no container of it.
type tried struct {
	count int
	// until is when the pod may be assigned there again.
	until time.Time
}

// judgeTries checks that a pod that was refused, or not started in time, is retried with back-off: at the same
// VirtualNode not before RefusalMemory has passed. From the second failure there, the delay doubles each time and
// applies to all VirtualNodes where the pod failed.
func (r *Record) judgeTries(record []Change) (faults []string) {
	tries := map[place]tried{}
	for _, c := range record {
		if c.After == nil {
			break
		}
		pod := c.After.(*corev1.Pod)
		if pod.Status.Phase != corev1.PodPending {
			clear(tries) // The pod has started.
		}
		from, to, none := assignedTo(c.Before), assignedTo(c.After), place{}
		switch {
		case from != none && to == none && r.inVain(c.Before.(*corev1.Pod), from, c.At):
			r.addTry(tries, from, r.decided(c.At))
		case from == none && to != none && c.At.Before(tries[to].until):
			faults = append(faults, fmt.Sprintf("%s is assigned to %s at %s, where it was tried %d times, and not to be again before %s",
				pod.Name, to, r.at(c.At), tries[to].count, r.at(tries[to].until)))
		}
	}
	return faults
}

// addTry counts an attempt that ended at a time. From the second attempt at a VirtualNode, its delay applies to all
// VirtualNodes that were tried.
func (r *Record) addTry(tries map[place]tried, at place, ended time.Time) {
	count := tries[at].count + 1
	until := ended.Add(min(r.Times.RefusalMemory<<(count-1), longestDelay*r.Times.RefusalMemory))
	for other, try := range tries {
		if count > 1 && try.until.Before(until) {
			tries[other] = tried{try.count, until}
		}
	}
	tries[at] = tried{count, until}
}

// decided returns the earliest time at which the broker may have made a decision that was written at a time. The broker
// stores seconds. The write may have waited for the API server, or for a paused broker.
func (r *Record) decided(written time.Time) time.Time {
	decided := written.Add(-2 * time.Second)
	for i := range r.Faults {
		f := &r.Faults[i]
		if (f.Kind == "leader stops" || slices.Contains(homeAway(), f.Kind)) && f.From.Before(decided) &&
			f.Until.After(written.Add(-2*time.Second)) {
			decided = f.From
		}
	}
	return decided
}

// inVain reports whether a pod leaves a VirtualNode only because that refused it, or has not started it in time.
func (r *Record) inVain(pod *corev1.Pod, from place, at time.Time) bool {
	if r.mayFailOver(from.provider, at) || r.isPlanned(from, at) {
		return false
	}
	return isRefused(pod, from.virtualNode) || pod.Status.Phase == corev1.PodPending &&
		at.Sub(v1alpha1.AssignedAt(pod)) >= r.Times.PendingTimeout
}
