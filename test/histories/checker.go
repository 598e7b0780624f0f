package histories

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

const (
	// noticed is how long the broker may take to notice that what speaks for a move is over: a probe's interval and timeout
	// twice, a lag of the watches, a pause shorter than the lease.
	noticed = 40 * time.Second
	// flap is how short an end of an outage is none.
	flap = 16 * time.Second
)

// span is a time from one moment to another.
type span struct{ from, to time.Time }

// run is a time in which the container of a pod ran at a provider.
type run struct {
	span
	provider  string
	completed bool
}

// judge returns what the broker did that it must not have done, in words; nothing if all is well.
func (o *outcome) judge() []string {
	var faults []string
	pods := o.localPods()
	runs := o.runs()
	for _, uid := range sortedKeys(pods) {
		faults = append(faults, o.judgeRuns(pods[uid], runs[uid])...)
		faults = append(faults, o.judgeMoves(pods[uid], runs[uid])...)
		faults = append(faults, o.judgeAssignments(pods[uid])...)
	}
	faults = append(faults, o.judgeGrants()...)
	faults = append(faults, o.judgeDrains()...)
	faults = append(faults, o.judgeNode()...)
	faults = append(faults, o.judgeRequests()...)
	if o.unsettled != "" {
		faults = append(faults, "not settled: "+o.unsettled)
	}
	return faults
}

// localPods are the changes of each pod in the broker's cluster.
func (o *outcome) localPods() map[types.UID][]change {
	pods := map[types.UID][]change{}
	record, _ := o.world.home.since(typeOf[corev1.Pod](), 0)
	for _, c := range record {
		uid := c.object().GetUID()
		pods[uid] = append(pods[uid], c)
	}
	return pods
}

// runs are the runs of each pod at all providers, by the UID in the broker's cluster.
func (o *outcome) runs() map[types.UID][]run {
	runs := map[types.UID][]run{}
	for _, p := range o.world.providers {
		began := map[types.UID]time.Time{}
		record, _ := p.server.since(typeOf[corev1.Pod](), 0)
		for _, c := range record {
			pod := c.object().(*corev1.Pod)
			of := types.UID(pod.Annotations[localUID])
			runsNow := c.after != nil && pod.Status.Phase == corev1.PodRunning
			from, ran := began[pod.UID]
			switch {
			case runsNow && !ran:
				began[pod.UID] = c.at
			case !runsNow && ran:
				delete(began, pod.UID)
				runs[of] = append(runs[of], run{span{from, c.at}, p.id, c.after != nil && pod.Status.Phase == corev1.PodSucceeded})
			}
		}
		for uid, from := range began {
			found := p.podOfUID(uid)
			runs[types.UID(found.Annotations[localUID])] = append(runs[types.UID(found.Annotations[localUID])],
				run{span{from, o.began.Add(time.Hour)}, p.id, false})
		}
	}
	for _, of := range runs {
		slices.SortFunc(of, func(a, b run) int { return a.from.Compare(b.from) })
	}
	return runs
}

func (p *provider) podOfUID(uid types.UID) *corev1.Pod {
	for _, o := range p.server.all(typeOf[corev1.Pod]()) {
		if o.GetUID() == uid {
			return o.(*corev1.Pod)
		}
	}
	return nil
}

// faultsAt are the times of faults of some kinds at a provider.
func (o *outcome) faultsAt(provider string, kinds ...string) (all []span) {
	for _, f := range o.history.Faults {
		if o.world.providers[f.Provider].id == provider && slices.Contains(kinds, f.Kind) {
			all = append(all, span{o.began.Add(f.At), o.began.Add(f.until())})
		}
	}
	return all
}

// outages are the times in which a provider could not be reached, those that follow each other soon as one.
func (o *outcome) outages(provider string) []span {
	all := o.faultsAt(provider, "provider refuses", "provider hangs", "provider lists nothing")
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	var merged []span
	for _, s := range all {
		if n := len(merged); n > 0 && s.from.Before(merged[n-1].to.Add(flap)) {
			if s.to.After(merged[n-1].to) {
				merged[n-1].to = s.to
			}
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// mayFailOver reports whether pods of a provider may run elsewhere at a time, because it was unreachable for long enough.
func (o *outcome) mayFailOver(provider string, at time.Time) bool {
	return slices.ContainsFunc(o.outages(provider), func(s span) bool {
		return at.After(s.from.Add(times().FailoverAfter-times().ProbeInterval)) && at.Before(s.to.Add(noticed))
	})
}

// judgeRuns checks that a pod runs once, and does not run again after it has completed.
func (o *outcome) judgeRuns(record []change, runs []run) (faults []string) {
	pod := record[0].object().(*corev1.Pod)
	for i, first := range runs {
		for _, second := range runs[i+1:] {
			switch {
			case o.failedOver(record, first.provider, second.from) || o.failedOver(record, second.provider, second.from):
			case second.from.Before(first.to):
				faults = append(faults, fmt.Sprintf("%s runs at %s from %s to %s, and at %s from %s", pod.Name, first.provider,
					o.at(first.from), o.at(first.to), second.provider, o.at(second.from)))
			case first.completed && !o.maybeUnseen(record, first, second):
				faults = append(faults, fmt.Sprintf("%s completed at %s at %s, and runs again at %s from %s", pod.Name, first.provider,
					o.at(first.to), second.provider, o.at(second.from)))
			}
		}
	}
	return faults
}

// failedOver reports whether a pod left a provider by then, or was assigned to another one, when that had been unreachable for
// long enough: it may run twice.
func (o *outcome) failedOver(record []change, provider string, then time.Time) bool {
	if record[0].object().GetAnnotations()[v1alpha1.FailoverAnnotation] == string(v1alpha1.FailoverNever) {
		return false
	}
	for _, c := range record {
		before, after := providerOf(c.before), providerOf(c.after)
		leaves := before == provider && after != provider
		isGivenUp := leftFrom(c.before) == provider && leftFrom(c.after) == ""
		if (leaves || isGivenUp || before == "" && after != "" && after != provider) && !c.at.After(then) && o.mayFailOver(provider, c.at) {
			return true
		}
	}
	return false
}

// providerOf is the provider that a pod is assigned to; "" is none.
func providerOf(pod object) string {
	if pod == nil {
		return ""
	}
	return pod.GetLabels()[v1alpha1.ProviderLabel]
}

// leftFrom is the provider that a pod is leaving; "" is none.
func leftFrom(pod object) string {
	if pod == nil {
		return ""
	}
	return pod.GetAnnotations()[v1alpha1.MovingFromProviderAnnotation]
}

// maybeUnseen reports whether it was not known, when a pod began to run again, that it had completed: it did so while it was
// leaving, or Liqo deleted it with its namespace, because an administrator deleted the VirtualNode, before its status was read.
func (o *outcome) maybeUnseen(record []change, ran, again run) bool {
	leaves := false
	for _, c := range record {
		if c.at.Before(again.from) && c.after != nil && terminal(c.after.(*corev1.Pod)) {
			return false
		}
		if c.at.Before(ran.to) {
			leaves = providerOf(c.after) != ran.provider
		}
	}
	return leaves || slices.ContainsFunc(o.history.Faults, func(f fault) bool {
		at := o.began.Add(f.At)
		return f.Kind == "part" && o.world.providers[f.Provider].id == ran.provider && at.After(ran.from) && at.Before(again.from)
	})
}

// at returns a time as of the beginning of the history.
func (o *outcome) at(t time.Time) time.Duration { return t.Sub(o.began).Round(time.Millisecond) }

// judgeMoves checks that a pod leaves its provider for a cause.
func (o *outcome) judgeMoves(record []change, runs []run) (faults []string) {
	for _, c := range record {
		if c.before == nil || c.after == nil {
			continue
		}
		before, after := c.before.(*corev1.Pod), c.after.(*corev1.Pod)
		from := before.Labels[v1alpha1.VirtualNodeLabel]
		if from == "" || after.Labels[v1alpha1.VirtualNodeLabel] != "" || terminal(before) {
			continue
		}
		if !o.mayMove(before, from, c.at, runs) {
			faults = append(faults, fmt.Sprintf("%s leaves %s at %s by %s without a cause: %s", before.Name, from, o.at(c.at), c.by,
				after.Annotations[v1alpha1.DecisionAnnotation]))
		}
	}
	return faults
}

func (o *outcome) mayMove(pod *corev1.Pod, from string, at time.Time, runs []run) bool {
	for _, p := range o.world.providers {
		if p.virtualNode() != from {
			continue
		}
		never := pod.Annotations[v1alpha1.FailoverAnnotation] == string(v1alpha1.FailoverNever)
		if !never && o.mayFailOver(p.id, at) {
			return true
		}
		for _, f := range o.history.Faults {
			began, ended := o.began.Add(f.At), o.began.Add(f.until()+noticed)
			if f.Provider < len(o.world.providers) && o.world.providers[f.Provider] == p && (f.Kind == "drain" || f.Kind == "part") &&
				at.After(began) && at.Before(ended) {
				return true
			}
		}
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if string(c.Type) == v1alpha1.ConditionRefusedPrefix+from && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	assigned, err := time.Parse(time.RFC3339Nano, pod.Annotations[v1alpha1.AssignedAtAnnotation])
	starts := slices.ContainsFunc(runs, func(r run) bool {
		return r.provider == providerOf(pod) && r.from.After(assigned) && r.from.Before(at.Add(-times().ProbeInterval)) && r.to.After(at)
	})
	return err == nil && pod.Status.Phase == corev1.PodPending && at.Sub(assigned) >= times().PendingTimeout && !starts
}

// judgeAssignments checks that no pod is assigned to a provider that has been unreachable for long, nor to one whose virtual
// kubelet has only connected for long, and that no mark of an outage is taken away meanwhile.
func (o *outcome) judgeAssignments(record []change) (faults []string) {
	for _, c := range record {
		if c.after == nil || providerOf(c.after) == "" {
			continue
		}
		at, name := providerOf(c.after), c.after.GetName()
		assigned := providerOf(c.before) != at
		marked := c.before != nil && c.before.GetAnnotations()[v1alpha1.UnreachableAnnotation] != ""
		unmarked := !assigned && marked && c.after.GetAnnotations()[v1alpha1.UnreachableAnnotation] == ""
		out := func(provider string, noticed time.Duration) bool {
			return slices.ContainsFunc(o.faultsAt(provider, "provider refuses", "provider hangs"), func(s span) bool {
				return c.at.After(s.from.Add(noticed)) && c.at.Before(s.to)
			})
		}
		// While most providers cannot be reached, the broker takes itself for the cause.
		suspects := slices.ContainsFunc(o.world.providers, func(p *provider) bool { return p.id != at && out(p.id, 0) })
		if (assigned || unmarked && !suspects) && out(at, noticed) {
			faults = append(faults, fmt.Sprintf("%s is assigned to %s at %s, or its mark taken away, which has been unreachable for long", name,
				at, o.at(c.at)))
		}
		if assigned && o.connects(at, c.at) {
			faults = append(faults, fmt.Sprintf("%s is assigned to %s at %s, whose virtual kubelet has only connected for long", name,
				at, o.at(c.at)))
		}
	}
	return faults
}

// connects reports whether a virtual kubelet has had its lease for a while and said all the time that it only connects.
func (o *outcome) connects(provider string, at time.Time) bool {
	record, _ := o.world.home.since(typeOf[coordinationv1.Lease](), 0)
	since, holder := time.Time{}, ""
	for _, c := range record {
		if c.object().GetName() != o.world.provider(provider).virtualNode() || c.after == nil || c.at.After(at) {
			continue
		}
		switch now := c.after.GetAnnotations()[v1alpha1.ConnectingAnnotation]; {
		case now == "":
			since, holder = time.Time{}, ""
		case now != holder:
			since, holder = c.at, now
		}
	}
	return !since.IsZero() && at.After(since.Add(2*times().ProbeInterval+times().ProbeTimeout))
}

func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// placeOf is where a pod takes room, by its labels and annotations.
func placeOf(pod *corev1.Pod) string {
	if at := pod.Labels[v1alpha1.VirtualNodeLabel]; at != "" || terminal(pod) {
		return at
	}
	return pod.Annotations[v1alpha1.MovingFromAnnotation]
}

// judgeGrants checks that what is assigned to a VirtualNode, and what is leaving it and still there, never exceeds the grant.
func (o *outcome) judgeGrants() (faults []string) {
	record, _ := o.world.home.since(typeOf[corev1.Pod](), 0)
	for _, p := range o.world.providers {
		present := p.presence()
		latest := map[types.UID]*corev1.Pod{}
		for _, c := range record {
			pod := c.object().(*corev1.Pod)
			if latest[pod.UID] = pod; c.after == nil {
				delete(latest, pod.UID)
			}
			if c.after == nil || pod.Labels[v1alpha1.VirtualNodeLabel] != p.virtualNode() ||
				c.before != nil && c.before.GetLabels()[v1alpha1.VirtualNodeLabel] == p.virtualNode() {
				continue // It was not assigned there just now.
			}
			sum, names := 0, []string{}
			for uid, other := range latest {
				assigned := other.Labels[v1alpha1.VirtualNodeLabel] == p.virtualNode()
				if assigned || placeOf(other) == p.virtualNode() && present.at(uid, c.at) {
					sum += cpusOf(&other.Spec)
					names = append(names, other.Name)
				}
			}
			if sum > p.cpus {
				slices.Sort(names)
				faults = append(faults, fmt.Sprintf("%s takes %s at %s to %d CPUs, which grants %d: %s ", pod.Name, p.virtualNode(),
					o.at(c.at), sum, p.cpus, strings.Join(names, " ")))
			}
		}
	}
	return faults
}

// judgeDrains checks that planned moves take at most a quarter of an application at a time, at least one pod. It is not judged
// when other faults make pods not Ready: the broker notices that later.
func (o *outcome) judgeDrains() (faults []string) {
	for _, f := range o.history.Faults {
		if !slices.Contains(calmFaults(), f.Kind) {
			return nil
		}
	}
	record, _ := o.world.home.since(typeOf[corev1.Pod](), 0)
	latest := map[types.UID]*corev1.Pod{}
	left := map[types.UID]bool{} // Those that were moved, and have not been Ready since.
	for _, c := range record {
		pod := c.object().(*corev1.Pod)
		if providerOf(pod) != "" && isReady(pod) {
			delete(left, pod.UID)
		}
		moves := c.after != nil && providerOf(c.before) != "" && providerOf(c.after) == ""
		if moves && isReadyBefore(record, c) && pod.Labels["app"] != "" {
			replicas, away := 1, 1
			for uid, other := range latest {
				if uid == pod.UID || other.Labels["app"] != pod.Labels["app"] || terminal(other) || other.DeletionTimestamp != nil {
					continue
				}
				if replicas++; left[uid] {
					away++
				}
			}
			if away > max(1, replicas/4) {
				faults = append(faults, fmt.Sprintf("%s is drained at %s while %d of %d replicas are away", pod.Name, o.at(c.at), away-1, replicas))
			}
		}
		if moves {
			left[pod.UID] = true
		}
		if latest[pod.UID] = pod; c.after == nil {
			delete(latest, pod.UID)
		}
	}
	return faults
}

// isReadyBefore reports whether a pod was Ready before the broker made it not Ready to move it.
func isReadyBefore(record []change, move change) bool {
	ready := false
	for _, c := range record {
		if c.object().GetUID() == move.object().GetUID() && c.before != nil && c.at.Before(move.at.Add(-time.Second)) && c.after != nil {
			ready = isReady(c.after.(*corev1.Pod))
		}
	}
	return ready
}

// presence is when a provider had ShadowPods, by the UIDs in the broker's cluster.
type presence map[types.UID][]span

func (p *provider) presence() presence {
	all, began := presence{}, map[types.UID]time.Time{}
	record, _ := p.server.since(typeOf[offloadingv1beta1.ShadowPod](), 0)
	for _, c := range record {
		uid := types.UID(c.object().GetAnnotations()[localUID])
		if c.before == nil {
			began[uid] = c.at
		}
		if c.after == nil {
			all[uid] = append(all[uid], span{began[uid], c.at})
			delete(began, uid)
		}
	}
	for uid, from := range began {
		all[uid] = append(all[uid], span{from, from.Add(time.Hour)})
	}
	return all
}

func (p presence) at(uid types.UID, t time.Time) bool {
	return slices.ContainsFunc(p[uid], func(s span) bool { return !t.Before(s.from) && t.Before(s.to) })
}

// judgeEnd returns what is not as it should be once nothing is wrong any more; "" if all is.
func (o *outcome) judgeEnd() string {
	var faults []string
	w := o.world
	locals := map[types.UID]*corev1.Pod{}
	for _, obj := range w.home.all(typeOf[corev1.Pod]()) {
		pod := obj.(*corev1.Pod)
		locals[pod.UID] = pod
		if fault := o.judgePod(pod); fault != "" {
			faults = append(faults, pod.Name+" "+fault)
		}
	}
	for _, p := range w.providers {
		for _, obj := range p.server.all(typeOf[offloadingv1beta1.ShadowPod]()) {
			local := locals[types.UID(obj.GetAnnotations()[localUID])]
			if local == nil || local.Labels[v1alpha1.VirtualNodeLabel] != p.virtualNode() {
				faults = append(faults, fmt.Sprintf("%s has a ShadowPod %s of a pod that is not there", p.id, obj.GetName()))
			}
		}
		for _, obj := range p.server.all(typeOf[corev1.Pod]()) {
			if _, err := p.server.find(typeOf[offloadingv1beta1.ShadowPod](), keyOf(obj)); err != nil {
				faults = append(faults, fmt.Sprintf("%s has a pod %s without a ShadowPod", p.id, obj.GetName()))
			}
		}
		faults = append(faults, o.judgeStatus(p)...)
	}
	if fault := o.judgeRoom(); fault != "" {
		faults = append(faults, fault)
	}
	return strings.Join(faults, "; ")
}

// judgePod returns what is wrong about one pod, at the end.
func (o *outcome) judgePod(pod *corev1.Pod) string {
	at := pod.Labels[v1alpha1.VirtualNodeLabel]
	switch {
	case pod.DeletionTimestamp != nil:
		return "is being deleted"
	case terminal(pod):
		return ""
	case at == "" && pod.Annotations[v1alpha1.MovingFromAnnotation] != "":
		return "is moving"
	case at == "":
		return o.judgeWaiting(pod)
	}
	for _, p := range o.world.providers {
		if p.virtualNode() != at {
			continue
		}
		found, err := p.server.find(typeOf[corev1.Pod](), types.NamespacedName{Namespace: p.namespace(), Name: pod.Name})
		if err != nil || found.GetAnnotations()[localUID] != string(pod.UID) {
			return "is not at " + p.id
		}
		there := found.(*corev1.Pod)
		if there.Status.Phase != corev1.PodRunning || pod.Status.Phase != corev1.PodRunning || !isReady(pod) {
			return fmt.Sprintf("is shown %s (ready: %t) and is %s at %s", pod.Status.Phase, isReady(pod), there.Status.Phase, p.id)
		}
		return ""
	}
	return "is at " + at
}

// judgeWaiting returns what is wrong about a pod that waits: there is room, or no reason is given.
func (o *outcome) judgeWaiting(pod *corev1.Pod) string {
	for _, p := range o.world.providers {
		free := p.cpus
		for _, obj := range o.world.home.all(typeOf[corev1.Pod]()) {
			if other := obj.(*corev1.Pod); placeOf(other) == p.virtualNode() {
				free -= cpusOf(&other.Spec)
			}
		}
		if free >= cpusOf(&pod.Spec) {
			return fmt.Sprintf("waits, and %s has %d CPUs free", p.id, free)
		}
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1alpha1.ConditionAssigned && c.Status == corev1.ConditionFalse && c.Message != "" {
			return ""
		}
	}
	return "waits without a reason"
}

// judgeStatus returns what is wrong about the status of a ProviderCluster, at the end.
func (o *outcome) judgeStatus(p *provider) (faults []string) {
	found, err := o.world.home.find(typeOf[v1alpha1.ProviderCluster](), types.NamespacedName{Name: p.id})
	if err != nil {
		return []string{"there is no ProviderCluster " + p.id}
	}
	pods := int32(0)
	for _, obj := range o.world.home.all(typeOf[corev1.Pod]()) {
		if pod := obj.(*corev1.Pod); placeOf(pod) == p.virtualNode() && !terminal(pod) {
			pods++
		}
	}
	status := &found.(*v1alpha1.ProviderCluster).Status
	if status.Pods != pods {
		faults = append(faults, fmt.Sprintf("ProviderCluster %s shows %d pods and has %d", p.id, status.Pods, pods))
	}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Status != "True" && c.Type != v1alpha1.ProviderDrained {
			faults = append(faults, fmt.Sprintf("ProviderCluster %s shows %s=%s: %s", p.id, c.Type, c.Status, c.Message))
		}
	}
	return faults
}
