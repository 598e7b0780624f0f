package judge

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// judgeMoves checks that a pod leaves its provider for a cause.
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
		if !r.mayMove(before, from, c.At, runs) {
			faults = append(faults, fmt.Sprintf("%s leaves %s at %s by %s without a cause: %s", before.Name, from, r.at(c.At), c.By,
				after.Annotations[v1alpha1.DecisionAnnotation]))
		}
	}
	return faults
}

func (r *Record) mayMove(pod *corev1.Pod, from place, at time.Time, runs []run) bool {
	never := pod.Annotations[v1alpha1.FailoverAnnotation] == string(v1alpha1.FailoverNever)
	if !never && r.mayFailOver(from.provider, at) || r.isPlanned(from, at) || isRefused(pod, from.virtualNode) {
		return true
	}
	assigned, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AssignedAtAnnotation])
	starts := slices.ContainsFunc(runs, func(one run) bool {
		return one.provider == providerOf(pod) && one.from.After(assigned) && one.from.Before(at.Add(-r.Times.ProbeInterval)) && one.to.After(at)
	})
	return err == nil && pod.Status.Phase == corev1.PodPending && at.Sub(assigned) >= r.Times.PendingTimeout && !starts
}

// isPlanned reports whether pods leave a VirtualNode at a time because of an administrator: it is drained, or deleted.
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

// noticedBy returns when a broker has noticed at last that a drain or a deletion is over, of which its own API server
// tells it. While that cannot be reached nothing is noticed, nor done.
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

// homeAway are the kinds of faults in which the API server of the broker's cluster answers nothing.
func homeAway() []string {
	return []string{"home refuses", "home hangs", "home's etcd hangs", "home's etcd is killed"}
}

// judgeAssignments checks that no pod is assigned to a provider that has been unreachable for long, or disabled, cordoned or
// drained, nor to one whose virtual kubelet has only connected for long, and that no mark of an outage is taken away meanwhile.
func (r *Record) judgeAssignments(record []Change) (faults []string) {
	for _, c := range record {
		if c.After == nil || providerOf(c.After) == "" {
			continue
		}
		at, name := providerOf(c.After), c.After.GetName()
		assigned := assignedTo(c.Before) != assignedTo(c.After)
		marked := c.Before != nil && c.Before.GetAnnotations()[v1alpha1.UnreachableAnnotation] != ""
		unmarked := !assigned && marked && c.After.GetAnnotations()[v1alpha1.UnreachableAnnotation] == ""
		out := func(provider string, noticed time.Duration) bool {
			return slices.ContainsFunc(r.faultsAt(provider, unreachable()...), func(s span) bool {
				return c.At.After(s.from.Add(noticed)) && c.At.Before(s.to)
			})
		}
		// While most providers cannot be reached, the broker takes itself for the cause.
		suspects := slices.ContainsFunc(r.Providers, func(p *Provider) bool { return p.ID != at && out(p.ID, 0) })
		if (assigned || unmarked && !suspects) && out(at, r.Times.Noticed) {
			faults = append(faults, fmt.Sprintf("%s is assigned to %s at %s, or its mark taken away, which has been unreachable for long", name,
				at, r.at(c.At)))
		}
		if assigned && slices.ContainsFunc(r.closed(at), func(s span) bool { return c.At.After(r.noticedBy(s.from)) && c.At.Before(s.to) }) {
			faults = append(faults, fmt.Sprintf("%s is assigned to %s at %s, which has been disabled, cordoned or drained for long", name, at, r.at(c.At)))
		}
		if assigned && r.connects(assignedTo(c.After), c.At) {
			faults = append(faults, fmt.Sprintf("%s is assigned to %s at %s, whose virtual kubelet has only connected for long", name,
				at, r.at(c.At)))
		}
	}
	return faults
}

// closed is when the ProviderCluster of a provider said that no pod is to be assigned to it.
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

// connects reports whether a virtual kubelet has had its lease for a while and said all the time that it only connects.
func (r *Record) connects(to place, at time.Time) bool {
	since, holder := time.Time{}, ""
	for _, c := range r.Home.Leases {
		if c.Object().GetName() != to.virtualNode || c.Object().GetNamespace() != "liqo-tenant-"+to.provider || c.After == nil || c.At.After(at) {
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
