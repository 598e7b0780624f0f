package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// judgeMoves checks that each move of a pod away from its provider has a cause.
func (r *Record) judgeMoves(record []Change, runs []run) (faults []string) {
	for _, c := range record {
		if c.Before == nil || c.After == nil {
			continue
		}
		before, after := c.Before.(*corev1.Pod), c.After.(*corev1.Pod)
		from := assignedTo(before)
		if from == (place{}) || assignedTo(after) != (place{}) || terminal(before) {
			continue
		}
		if r.is(SomewhereBetter) && isTaken(before) && !terminal(after) && after.DeletionTimestamp == nil && c.By != "" &&
			r.alone(from, c.At, before) {
			faults = append(faults, fmt.Sprintf("%s leaves %s at %s by %s, which cannot be reached, and there is room nowhere else",
				before.Name, from, r.at(c.At), c.By))
		}
		if !r.mayMove(record, before, from, c.At, runs) {
			faults = append(faults, fmt.Sprintf("%s leaves %s at %s by %s without a cause: %s", before.Name, from, r.at(c.At), c.By,
				after.Annotations[v1alpha1.DecisionAnnotation]))
		}
	}
	return faults
}

func (r *Record) mayMove(record []Change, pod *corev1.Pod, from place, at time.Time, runs []run) bool {
	never := pod.Annotations[v1alpha1.FailoverAnnotation] == string(v1alpha1.FailoverNever)
	if !never && r.mayFailOver(from.provider, at) || r.isPlanned(from, at) || isRefused(pod, from.virtualNode) {
		return true
	}
	idle, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AssignedAtAnnotation])
	for _, one := range runs {
		noticed := at.Add(-r.Times.ProbeInterval)
		if one.provider == providerOf(pod) && one.from.Before(noticed) && (one.to.After(noticed) || isShown(record, one, at)) {
			idle = latestOf(idle, one.to)
		}
	}
	return err == nil && pod.Status.Phase == corev1.PodPending && at.Sub(idle) >= r.Times.PendingTimeout-time.Second &&
		!r.preparedAt(from.provider, pod.UID, at.Add(-r.Times.ProbeInterval))
}

// isShown reports whether a pod was shown Running here after a run began, and by then. A run that no virtual kubelet
// shows, because it is down, is not known here.
func isShown(record []Change, one run, then time.Time) bool {
	return slices.ContainsFunc(record, func(c Change) bool {
		pod, is := c.After.(*corev1.Pod)
		return is && pod.Status.Phase == corev1.PodRunning && c.At.After(one.from) && c.At.Before(then)
	})
}

// preparedAt reports whether a provider had created the sandbox of a pod by then, so that its containers start next.
func (r *Record) preparedAt(provider string, uid types.UID, then time.Time) (prepared bool) {
	for _, p := range r.Providers {
		if p.ID != provider {
			continue
		}
		ofs := p.madeOf()
		for i := range p.Pods {
			c := &p.Pods[i]
			if c.At.After(then) {
				break
			}
			if ofs[c.Object().GetUID()] == uid {
				prepared = c.After != nil && !terminal(c.After.(*corev1.Pod)) && c.After.GetDeletionTimestamp() == nil &&
					isTrue(c.After.(*corev1.Pod), corev1.PodReadyToStartContainers)
			}
		}
	}
	return prepared
}

// isTaken reports whether the containers of a pod were started.
func isTaken(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// alone reports whether a pod leaves only because its provider is unreachable, although no other VirtualNode has
// capacity for it, now or shortly before. Such a pod must stay: it may still run there.
func (r *Record) alone(from place, at time.Time, pod *corev1.Pod) bool {
	// A decision that the broker made before its API server hung takes effect afterwards.
	hung := slices.ContainsFunc(r.Faults, func(f Fault) bool {
		return slices.Contains(homeAway(), f.Kind) && f.From.Before(at) && !f.Until.Before(at.Add(-r.Times.Noticed))
	})
	if hung || r.isPlanned(from, at) || isRefused(pod, from.virtualNode) || !r.mayFailOver(from.provider, at) {
		return false
	}
	now := latestPods(r.Home.Pods[:until(r.Home.Pods, at.Add(-time.Nanosecond))])
	before := latestPods(r.Home.Pods[:until(r.Home.Pods, at.Add(-3*time.Second))])
	for other, granted := range r.granted() {
		if other != from && max(free(other, granted, now), free(other, granted, before)) >= millisOf(&pod.Spec) {
			return false
		}
	}
	return true
}

// until returns how many changes were made by then.
func until(record []Change, then time.Time) int {
	n, _ := slices.BinarySearchFunc(record, then, func(c Change, t time.Time) int { return cmp.Or(c.At.Compare(t), -1) })
	return n
}

// free returns the remaining capacity of a VirtualNode in thousandths of a CPU.
func free(at place, granted int64, pods []*corev1.Pod) int64 {
	for _, pod := range pods {
		if placeOf(pod) == at {
			granted -= millisOf(&pod.Spec)
		}
	}
	return granted
}

// judgeEvidence checks that a pod is assigned without the conditions that the kubelets of its previous provider wrote:
// the next provider would be judged by them.
func (r *Record) judgeEvidence(record []Change) (faults []string) {
	for _, c := range record {
		pod, is := c.After.(*corev1.Pod)
		if !r.is(Evidence) || !is || assignedTo(c.Before) != (place{}) || assignedTo(pod) == (place{}) || terminal(pod) {
			continue
		}
		for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady} {
			if isTrue(pod, kind) {
				faults = append(faults, fmt.Sprintf("%s is assigned to %s at %s and has %s=True of another provider",
					pod.Name, assignedTo(pod), r.at(c.At), kind))
			}
		}
	}
	return faults
}

// isPlanned reports whether pods leave a VirtualNode at a time because an administrator drained its provider or deleted
// the VirtualNode.
func (r *Record) isPlanned(from place, at time.Time) bool {
	planned := append(r.faultsAt(from.provider, "drain"), r.parts(from.provider, from.virtualNode)...)
	return slices.ContainsFunc(planned, func(s span) bool { return at.After(s.from) && at.Before(r.noticedBy(s.to)) })
}

// isRefused reports whether a VirtualNode has refused a pod.
func isRefused(pod *corev1.Pod, virtualNode string) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return string(c.Type) == v1alpha1.ConditionRefusedPrefix+virtualNode && c.Status == corev1.ConditionTrue
	})
}

// noticedBy returns the latest time at which a broker notices that a drain or a deletion is over. It learns that from
// its own API server; while that is unreachable, the broker notices nothing and does nothing.
func (r *Record) noticedBy(over time.Time) time.Time {
	by := over.Add(r.Times.Noticed)
	faults := slices.Clone(r.Faults)
	slices.SortFunc(faults, func(a, b Fault) int { return a.From.Compare(b.From) })
	for i := range faults {
		f := &faults[i]
		if slices.Contains(homeAway(), f.Kind) && f.From.Before(by) && f.Until.After(over) {
			by = by.Add(f.Until.Sub(latestOf(f.From, over)))
		}
	}
	return by
}

// homeAway returns the kinds of faults in which the API server of the broker's cluster answers nothing.
func homeAway() []string {
	return []string{"home refuses", "home hangs", "home's etcd hangs", "home's etcd is killed"}
}

// rejected returns the spans in which a provider rejects requests and that include a time, or ended shortly before it.
func (r *Record) rejected(provider string, at time.Time) []span {
	return slices.DeleteFunc(r.faultsAt(provider, rejecting()...),
		func(s span) bool { return at.Before(s.from) || at.After(s.to.Add(r.Times.Noticed)) })
}

// judgeAssignments checks that no pod is assigned to a provider that has been unreachable, disabled, cordoned or
// drained for longer than the broker takes to notice, nor to a VirtualNode whose virtual kubelet is still connecting.
// It also checks that no unreachable mark is removed during an outage.
func (r *Record) judgeAssignments(record []Change) (faults []string) {
	for _, c := range record {
		if c.After == nil || providerOf(c.After) == "" {
			continue
		}
		at, name := providerOf(c.After), c.After.GetName()
		assigned := assignedTo(c.Before) != assignedTo(c.After)
		if assigned && slices.ContainsFunc(r.certainAt(at, rejecting()...), func(s span) bool {
			return c.At.After(s.from.Add(r.Times.Noticed)) && c.At.Before(s.to)
		}) {
			faults = append(faults, fmt.Sprintf("%s is assigned to %s at %s, which has rejected requests for long", name, at, r.at(c.At)))
		}
		marked := c.Before != nil && c.Before.GetAnnotations()[v1alpha1.UnreachableAnnotation] != ""
		unmarked := !assigned && marked && c.After.GetAnnotations()[v1alpha1.UnreachableAnnotation] == ""
		out := func(provider string, noticed time.Duration) bool {
			return slices.ContainsFunc(r.certainAt(provider, unreachable()...), func(s span) bool {
				return c.At.After(s.from.Add(noticed)) && c.At.Before(s.to)
			})
		}
		// While most providers are unreachable, the broker assumes that its own network is the cause.
		suspects := slices.ContainsFunc(r.Providers, func(p *Provider) bool {
			return p.ID != at && slices.ContainsFunc(r.faultsAt(p.ID, unreachable()...), func(s span) bool {
				return c.At.After(s.from) && c.At.Before(s.to.Add(r.Times.Noticed)) // The other one is probed a while later.
			})
		})
		// A provider that rejects requests during the outage answers.
		answers := len(r.rejected(at, c.At)) > 0
		if (assigned || unmarked && !suspects && !answers) && out(at, r.Times.Noticed) {
			faults = append(faults, fmt.Sprintf("%s is assigned to %s at %s, or its mark taken away, which has been unreachable for long",
				name, at, r.at(c.At)))
		}
		closed := func(s span) bool { return c.At.After(r.noticedBy(s.from)) && c.At.Before(s.to) }
		if assigned && slices.ContainsFunc(r.closed(at), closed) {
			faults = append(faults,
				fmt.Sprintf("%s is assigned to %s at %s, which has been disabled, cordoned or drained for long", name, at, r.at(c.At)))
		}
		if assigned && r.connects(assignedTo(c.After), c.At) {
			faults = append(faults, fmt.Sprintf("%s is assigned to %s at %s, whose virtual kubelet has only connected for long", name,
				at, r.at(c.At)))
		}
	}
	return faults
}

// rejecting returns the kinds of faults in which a provider answers but accepts no pods.
func rejecting() []string {
	return []string{"provider rejects the identity", "provider forbids", "provider throttles", "provider is not ready"}
}

// closed returns when the ProviderCluster of a provider was disabled, cordoned or drained.
func (r *Record) closed(provider string) (spans []span) {
	from := time.Time{}
	for _, c := range r.Home.ProviderClusters {
		if c.Object().GetName() != provider {
			continue
		}
		says := false
		if c.After != nil {
			spec := c.After.(*v1alpha1.ProviderCluster).Spec
			says = spec.Enabled != nil && !*spec.Enabled || spec.Cordoned || spec.Drain
		}
		switch {
		case says && from.IsZero():
			from = c.At
		case !says && !from.IsZero():
			spans = append(spans, span{from, c.At})
			from = time.Time{}
		}
	}
	if !from.IsZero() {
		spans = append(spans, span{from, r.Ended})
	}
	return spans
}

// connects reports whether a virtual kubelet has held its lease for a while and was still connecting all the time.
func (r *Record) connects(to place, at time.Time) bool {
	since, holder := time.Time{}, ""
	for _, c := range r.Home.Leases {
		if c.Object().GetName() != to.virtualNode || c.Object().GetNamespace() != "liqo-tenant-"+to.provider ||
			c.After == nil || c.At.After(at) {
			continue
		}
		switch now := c.After.GetAnnotations()[v1alpha1.ConnectingAnnotation]; {
		case now == "":
			since, holder = time.Time{}, ""
		case now != holder:
			since, holder = c.At, now
		}
	}
	return !since.IsZero() && at.After(since.Add(2*r.Times.ProbeInterval+r.Times.ProbeTimeout))
}
