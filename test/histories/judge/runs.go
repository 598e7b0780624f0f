package judge

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// run is a period in which the container of a pod ran at a provider.
type run struct {
	span
	provider  string
	completed bool
	// of is the UID of the remote pod.
	of types.UID
}

// runs returns the runs of each pod at all providers, by the pod's UID in the broker's cluster.
func (r *Record) runs() map[types.UID][]run {
	runs := map[types.UID][]run{}
	for _, p := range r.Providers {
		began, ofs := map[types.UID]time.Time{}, p.madeOf()
		for i := range p.Pods {
			c := &p.Pods[i]
			pod := c.Object().(*corev1.Pod)
			of := ofs[pod.UID]
			runsNow := of != "" && c.After != nil && pod.Status.Phase == corev1.PodRunning
			from, ran := began[pod.UID]
			switch {
			case runsNow && !ran:
				began[pod.UID] = c.At
			case !runsNow && ran:
				delete(began, pod.UID)
				runs[of] = append(runs[of], run{span{from, c.At}, p.ID, c.After != nil && pod.Status.Phase == corev1.PodSucceeded, pod.UID})
			}
		}
		for uid, from := range began {
			runs[ofs[uid]] = append(runs[ofs[uid]], run{span{from, from.Add(time.Hour)}, p.ID, false, uid})
		}
	}
	for _, of := range runs {
		slices.SortFunc(of, func(a, b run) int { return a.from.Compare(b.from) })
	}
	return runs
}

// madeOf maps the pods of a provider to the pods in the broker's cluster from which they were made. Only the
// annotations with which a pod was created count: Liqo's controller overwrites them with the annotations of a later
// ShadowPod of the same name.
func (p *Provider) madeOf() map[types.UID]types.UID {
	ofs := map[types.UID]types.UID{}
	for i := range p.Pods {
		o := p.Pods[i].Object()
		if _, known := ofs[o.GetUID()]; !known {
			ofs[o.GetUID()] = types.UID(o.GetAnnotations()[PodUID])
		}
	}
	return ofs
}

// faultsAt returns when faults of some kinds affected a provider.
func (r *Record) faultsAt(provider string, kinds ...string) []span {
	return r.spans(provider, kinds, func(f *Fault) time.Time { return f.Until })
}

// certainAt returns when faults certainly had their effect at a provider.
func (r *Record) certainAt(provider string, kinds ...string) []span {
	return r.spans(provider, kinds, (*Fault).certain)
}

func (r *Record) spans(provider string, kinds []string, end func(*Fault) time.Time) (all []span) {
	for i := range r.Faults {
		if f := &r.Faults[i]; f.Provider == provider && slices.Contains(kinds, f.Kind) {
			all = append(all, span{f.From, end(f)})
		}
	}
	return all
}

// parts returns when a VirtualNode of a provider was deleted.
func (r *Record) parts(provider, virtualNode string) (all []span) {
	for i := range r.Faults {
		f := &r.Faults[i]
		if f.Kind == "part" && f.Provider == provider && (f.VirtualNode == "" || f.VirtualNode == virtualNode) {
			all = append(all, span{f.From, f.Until})
		}
	}
	return all
}

// unreachable returns the kinds of faults in which a provider does not report that it is ready.
func unreachable() []string {
	return []string{"provider refuses", "provider hangs", "provider reads nothing", "provider's etcd hangs", "provider's etcd is killed"}
}

// outages returns when a provider was unreachable. Outages that follow each other within Flap count as one. flaps are the
// times in between.
func (r *Record) outages(provider string) (merged, flaps []span) {
	all := r.faultsAt(provider, unreachable()...)
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	for _, s := range all {
		n := len(merged)
		if n == 0 || !s.from.Before(merged[n-1].to.Add(r.Times.Flap)) {
			merged = append(merged, s)
			continue
		}
		if last := &merged[n-1]; s.from.After(last.to) {
			flaps = append(flaps, span{last.to, s.from})
		}
		merged[n-1].to = latestOf(merged[n-1].to, s.to)
	}
	return merged, flaps
}

// mayFailOver reports whether pods of a provider may run elsewhere at a time, because it was unreachable for long
// enough.
func (r *Record) mayFailOver(provider string, at time.Time) bool {
	outages, flaps := r.outages(provider)
	return slices.ContainsFunc(outages, func(s span) bool {
		return at.After(s.from.Add(r.Times.FailoverAfter-r.Times.ProbeInterval)) && at.Before(s.to.Add(r.Times.Noticed))
	}) && r.silent(provider, at, slices.DeleteFunc(flaps, func(s span) bool { return r.answersTwice(provider, s) }))
}

// answersTwice reports whether a provider answered two probes of one broker in a span. One answer ends no outage
// (docs/broker.md, Moving).
func (r *Record) answersTwice(provider string, s span) bool {
	probes := map[string]int{}
	for _, p := range r.Providers {
		for i := range p.Answers {
			a := &p.Answers[i]
			if p.ID == provider && a.Probe && a.Code < http.StatusInternalServerError && strings.HasPrefix(a.By, "broker-") &&
				!a.At.Before(s.from) && !a.At.After(s.to) {
				probes[a.By]++
			}
		}
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(probes)), func(n int) bool { return n > 1 })
}

// silent reports whether a provider answered neither brokers nor its virtual kubelets for FailoverAfter, until shortly
// before a time. Server errors do not count, nor do answers in flaps.
func (r *Record) silent(provider string, at time.Time, flaps []span) bool {
	for _, p := range r.Providers {
		if p.ID != provider {
			continue
		}
		if len(p.Answers) == 0 || !r.is(Silence) {
			return true // Answers were not recorded.
		}
		last := r.Began
		for i := range p.Answers {
			a := &p.Answers[i]
			if a.Code >= http.StatusInternalServerError || !strings.HasPrefix(a.By, "broker-") && !strings.HasPrefix(a.By, "kubelet-") {
				continue
			}
			if slices.ContainsFunc(flaps, func(s span) bool { return !a.At.Before(s.from) && !a.At.After(s.to) }) {
				continue
			}
			if a.At.Sub(last) >= r.Times.FailoverAfter-r.Times.ProbeInterval && a.At.After(at.Add(-r.Times.Noticed)) &&
				last.Add(r.Times.FailoverAfter-r.Times.ProbeInterval).Before(at) {
				return true
			}
			if last = a.At; last.After(at) {
				return false
			}
		}
		return at.Sub(last) >= r.Times.FailoverAfter-r.Times.ProbeInterval
	}
	return false
}

// judgeNames checks that two pods of the same name, as a StatefulSet creates them one after the other, do not run at
// the same time.
func (r *Record) judgeNames(pods map[types.UID][]Change, runs map[types.UID][]run) (faults []string) {
	byName := map[string][]types.UID{}
	if !r.is(Names) {
		return nil
	}
	for _, uid := range sortedKeys(pods) {
		name := pods[uid][0].Object().GetName()
		for _, other := range byName[name] {
			for _, a := range runs[other] {
				for _, b := range runs[uid] {
					begins, ends := latestOf(a.from, b.from), earliestOf(a.to, b.to)
					excused := r.mayFailOver(a.provider, begins) || r.mayFailOver(b.provider, begins) || r.unanswered(a.provider, begins)
					if begins.Add(r.Times.Overlap).Before(ends) && !excused {
						faults = append(faults, fmt.Sprintf("two pods of the name %s run at once, at %s and at %s from %s to %s",
							name, a.provider, b.provider, r.at(begins), r.at(ends)))
					}
				}
			}
		}
		byName[name] = append(byName[name], uid)
	}
	return faults
}

// unanswered reports whether a provider had rejected requests for FailoverAfter at a time. A new leader that has not
// seen a pod cannot know that it exists, and waits no longer than that for an answer.
func (r *Record) unanswered(provider string, at time.Time) bool {
	return slices.ContainsFunc(r.rejected(provider, at), func(s span) bool {
		return at.Sub(s.from) >= r.Times.FailoverAfter-r.Times.ProbeInterval
	})
}

// judgeOnce checks that a pod with restartPolicy Never is not started elsewhere after it was known to run. A provider
// may recreate the pod from the same ShadowPod; that is not counted.
func (r *Record) judgeOnce(record []Change, runs []run) (faults []string) {
	pod := record[0].Object().(*corev1.Pod)
	if !r.is(Once) || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return nil
	}
	shown := time.Time{}
	for _, c := range record {
		after, is := c.After.(*corev1.Pod)
		if is && after.Status.Phase == corev1.PodRunning && shown.IsZero() {
			shown = c.At
		}
		if is && !shown.IsZero() && assignedTo(c.Before) == (place{}) && assignedTo(after) != (place{}) && !terminal(after) {
			if i := slices.IndexFunc(runs, func(one run) bool { return one.from.After(c.At) }); i >= 0 {
				faults = append(faults, fmt.Sprintf("%s, whose restartPolicy is Never, ran at %s and is started again at %s at %s",
					pod.Name, r.at(shown), runs[i].provider, r.at(runs[i].from)))
			}
		}
	}
	return faults
}

// judgeRuns checks that a pod runs at one place at a time, and does not run again after it has completed.
func (r *Record) judgeRuns(record []Change, runs []run) (faults []string) {
	pod := record[0].Object().(*corev1.Pod)
	for i, first := range runs {
		for _, second := range runs[i+1:] {
			switch {
			case r.failedOver(record, first.provider, second.from) || r.failedOver(record, second.provider, second.from):
			case second.from.Add(r.Times.Overlap).Before(first.to) && second.to.Sub(second.from) > r.Times.Overlap:
				faults = append(faults, fmt.Sprintf("%s runs at %s from %s to %s, and at %s from %s", pod.Name, first.provider,
					r.at(first.from), r.at(first.to), second.provider, r.at(second.from)))
			case first.completed && !r.maybeUnseen(record, first, second) && !r.madeAgain(pod.GetUID(), first, second):
				faults = append(faults, fmt.Sprintf("%s completed at %s at %s, and runs again at %s from %s", pod.Name, first.provider,
					r.at(first.to), second.provider, r.at(second.from)))
			}
		}
	}
	return faults
}

// failedOver reports whether a pod may run twice: by then it had left a provider, or was assigned to another one, after
// the provider had been unreachable for long enough.
func (r *Record) failedOver(record []Change, provider string, then time.Time) bool {
	if record[0].Object().GetAnnotations()[v1alpha1.FailoverAnnotation] == string(v1alpha1.FailoverNever) {
		return false
	}
	for _, c := range record {
		before, after := providerOf(c.Before), providerOf(c.After)
		leaves := before == provider && after != provider
		isGivenUp := leftFrom(c.Before) == provider && leftFrom(c.After) == ""
		if (leaves || isGivenUp || before == "" && after != "" && after != provider) && !c.At.After(then) &&
			(r.mayFailOver(provider, c.At) || r.givenUp(provider, c.At)) {
			return true
		}
	}
	return false
}

// givenUp reports whether an administrator had drained a provider that rejects the broker by then.
func (r *Record) givenUp(provider string, at time.Time) bool {
	return r.unanswered(provider, at) && slices.ContainsFunc(r.faultsAt(provider, "drain"), func(s span) bool {
		return at.After(s.from) && at.Before(s.to.Add(r.Times.Noticed))
	})
}

// reported is how long a virtual kubelet may take to report that a pod has completed.
const reported = 2 * time.Second

// maybeUnseen reports whether the completion of a pod may have been unknown when the pod began to run again. Its
// ShadowPod was deleted before the completion, or so soon after it that the status was not reported yet. Or an
// administrator deleted the VirtualNode, and Liqo deleted the pod with its namespace before its status was read.
func (r *Record) maybeUnseen(record []Change, ran, again run) bool {
	for _, c := range record {
		if c.At.Before(again.from) && c.After != nil && terminal(c.After.(*corev1.Pod)) {
			return false
		}
	}
	return r.deletedAt(ran.provider, record[0].Object().GetUID(), span{ran.from, ran.to.Add(reported)}) ||
		slices.ContainsFunc(r.faultsAt(ran.provider, "part"), func(s span) bool {
			return s.from.Before(again.from) && s.to.After(ran.to.Add(-reported))
		})
}

// madeAgain reports whether a provider ran a pod again from the same ShadowPod: Liqo's controller there creates another
// pod if the completed one was removed before the controller wrote the completion into the ShadowPod.
func (r *Record) madeAgain(uid types.UID, ran, again run) bool {
	return ran.provider == again.provider && slices.ContainsFunc(r.Providers, func(p *Provider) bool {
		return p.ID == ran.provider && slices.ContainsFunc(p.presence("")[uid], func(s span) bool {
			return s.from.Before(ran.from) && s.to.After(again.from)
		})
	})
}

// deletedAt reports whether a provider's ShadowPod of a pod was deleted within a period.
func (r *Record) deletedAt(provider string, uid types.UID, within span) bool {
	return slices.ContainsFunc(r.Providers, func(p *Provider) bool {
		return p.ID == provider && slices.ContainsFunc(p.presence("")[uid], func(s span) bool {
			return s.to.After(within.from) && s.to.Before(within.to)
		})
	})
}

// judgePresence checks that only one provider at a time has a ShadowPod of a pod: a provider with a ShadowPod will run
// the pod.
func (r *Record) judgePresence(record []Change) (faults []string) {
	pod := record[0].Object()
	for i, first := range r.Providers {
		for _, second := range r.Providers[i+1:] {
			for _, a := range first.presence("")[pod.GetUID()] {
				for _, b := range second.presence("")[pod.GetUID()] {
					begins, ends := latestOf(a.from, b.from), earliestOf(a.to, b.to)
					failedOver := r.failedOver(record, first.ID, begins) || r.failedOver(record, second.ID, begins)
					if begins.Add(r.Times.Overlap).Before(ends) && !failedOver {
						faults = append(faults, fmt.Sprintf("%s has a ShadowPod at %s and at %s from %s to %s", pod.GetName(),
							first.ID, second.ID, r.at(begins), r.at(ends)))
					}
				}
			}
		}
	}
	return faults
}

// judgeEnd checks that a pod that is shown as ended has ended at a provider before, and not because it was deleted
// there.
func (r *Record) judgeEnd(record []Change) (faults []string) {
	for _, c := range record {
		before, _ := c.Before.(*corev1.Pod)
		after, is := c.After.(*corev1.Pod)
		if !is || !terminal(after) || before == nil || terminal(before) || after.DeletionTimestamp != nil {
			continue
		}
		if after.Status.Reason != "" && after.Status.Reason != "RemotePodTerminated" {
			continue // Liqo ended it, or Kubernetes in the broker's cluster.
		}
		if endsOnce(after) || r.disruptedBy(after.UID, c.At.Add(r.Times.Skew)) {
			continue
		}
		if !r.endedBy(after.UID, c.At.Add(r.Times.Skew)) {
			faults = append(faults,
				fmt.Sprintf("%s is shown as %s at %s, and has not ended by itself", after.Name, after.Status.Phase, r.at(c.At)))
		}
	}
	return faults
}

// endsOnce reports whether a pod that must not run twice was ended instead of moved, and has the condition for it.
func endsOnce(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever && pod.Status.Phase == corev1.PodFailed &&
		isTrue(pod, corev1.DisruptionTarget)
}

func isTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// disruptedBy reports whether a provider had ended a pod by then while its ShadowPod still existed.
func (r *Record) disruptedBy(uid types.UID, then time.Time) bool {
	return slices.ContainsFunc(r.Providers, func(p *Provider) bool {
		ofs, present := p.madeOf(), p.presence("")
		return slices.ContainsFunc(p.Pods, func(c Change) bool {
			there, is := c.Before.(*corev1.Pod)
			return is && (ofs[there.UID] == uid || there.Annotations[PodUID] == string(uid)) && !c.At.After(then) &&
				present.at(uid, c.At) && (deletes(&c) || c.After != nil && isTrue(c.After.(*corev1.Pod), corev1.DisruptionTarget))
		})
	})
}

// endedBy reports whether a pod had ended by itself at a provider by then.
func (r *Record) endedBy(uid types.UID, then time.Time) bool {
	return slices.ContainsFunc(r.Providers, func(p *Provider) bool {
		return slices.ContainsFunc(p.Pods, func(c Change) bool {
			there, is := c.After.(*corev1.Pod)
			return is && there.Annotations[PodUID] == string(uid) && terminal(there) && there.DeletionTimestamp == nil && !c.At.After(then)
		})
	})
}

func latestOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliestOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
