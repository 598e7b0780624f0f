package judge

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// judgeDeletions checks that no ShadowPod is deleted whose pod has been assigned there for longer than the broker takes
// to notice.
func (r *Record) judgeDeletions(record []Change) (faults []string) {
	uid := record[0].Object().GetUID()
	for _, p := range r.Providers {
		for _, c := range p.ShadowPods {
			if types.UID(c.Object().GetAnnotations()[PodUID]) != uid || !deletes(&c) {
				continue
			}
			by := originOf(c.Object())
			since := assignedSince(record, p.at(by), c.At)
			if since.IsZero() || c.At.Sub(since) < r.Times.Noticed || r.parted(p.ID, by, c.At) || ends(record, c.At.Add(r.Times.Skew)) {
				continue
			}
			faults = append(faults, fmt.Sprintf("the ShadowPod of %s at %s is deleted at %s by %s, and the pod is assigned there since %s",
				record[0].Object().GetName(), p.ID, r.at(c.At), c.By, r.at(since)))
		}
	}
	return faults
}

// deletes reports whether a change starts the deletion of an object, or removes it at once.
func deletes(c *Change) bool {
	if c.Before == nil || c.Before.GetDeletionTimestamp() != nil {
		return false
	}
	return c.After == nil || c.After.GetDeletionTimestamp() != nil
}

// assignedSince returns since when a pod has been assigned to a VirtualNode at a time; zero if it is not, has ended or
// is terminating.
func assignedSince(record []Change, to place, at time.Time) (since time.Time) {
	for _, c := range record {
		if c.At.After(at) {
			break
		}
		pod, _ := c.After.(*corev1.Pod)
		switch is := pod != nil && pod.DeletionTimestamp == nil && !terminal(pod) && assignedTo(pod) == to; {
		case !is:
			since = time.Time{}
		case since.IsZero():
			since = c.At
		}
	}
	return since
}

// ends reports whether a pod has ended, is terminating or is gone at a time.
func ends(record []Change, at time.Time) (is bool) {
	for _, c := range record {
		if c.At.After(at) {
			break
		}
		pod, _ := c.After.(*corev1.Pod)
		is = pod == nil || pod.DeletionTimestamp != nil || terminal(pod)
	}
	return is
}

// parted reports whether a VirtualNode of a provider was deleted before a time, and Liqo may not have cleaned up there
// yet.
func (r *Record) parted(provider, virtualNode string, at time.Time) bool {
	return slices.ContainsFunc(r.parts(provider, virtualNode), func(s span) bool {
		return at.After(s.from) && at.Before(s.to.Add(r.Times.Noticed))
	})
}
