package simulate

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// phase is the state of a pod between two steps of the broker.
type phase int

const (
	waits phase = iota
	assigned
	leaves
	gone
)

// The times of pods.Controller.
const (
	replicasRetry  = time.Minute
	longestNowhere = 30 * time.Second
	leavingRecheck = 5 * time.Second
)

type replicasKey struct{ namespace, key string }

// pod is a pod that exists.
type pod struct {
	*workload
	// number counts the pods by their arrival.
	number int
	name   types.NamespacedName
	// object is the pod as the API shows it. Its maps and its status are replaced, never changed.
	object *corev1.Pod
	key    replicasKey
	phase  phase
	// place is where it is assigned, or the place that it leaves. step is the number of the last change of either: a
	// step that was scheduled before it does not count.
	place scheduler.Place
	step  int
	// checked is the number of the last scheduled check.
	checked int
	// share is the share of start times below its own. left is the rest of its lifetime, runs since when it runs; zero
	// if it does not.
	share float64
	left  time.Duration
	runs  time.Time

	recorded
}

// arrive has the next pod of a workload arrive: it is bound to the broker's node.
func (s *simulation) arrive(w *workload) {
	now := s.clock.now
	p := &pod{workload: w, object: w.pod(metav1.NewTime(now)), share: w.stream.random.Float64()}
	p.left = w.spec.Lifetime.at(w.stream.random.Float64())
	p.name = types.NamespacedName{Namespace: p.object.Namespace, Name: p.object.Name}
	p.key = replicasKey{p.name.Namespace, placement.ReplicasOf(p.object)}
	s.pods[p.name] = p
	if s.replicas[p.key] == nil {
		s.replicas[p.key] = map[*pod]struct{}{}
	}
	s.replicas[p.key][p] = struct{}{}
	s.waiting++
	s.recordArrival(p, now)
	if to := w.spec.AssignedTo; to != nil && w.made <= w.spec.Arrivals.Initial {
		s.state.ObserveAccount(p.object, placement.AccountOf(p.object, p.namespace))
		s.assignTo(p, scheduler.Place{Provider: to.Provider, VirtualNode: to.VirtualNode})
		return
	}
	s.assign(p)
}

// assign has a pod decided about that waits: Controller.assign.
func (s *simulation) assign(p *pod) {
	if p.invalid != "" {
		s.state.ObserveWaits(p.object)
		return
	}
	d := s.state.Assume(p.criteria.Pod(p.object, p.namespace), p.criteria.Policy)
	if d.VirtualNode == "" {
		p.observe(&d)
		s.state.ObserveWaits(p.object)
		s.tick()
		if d.Held != "" {
			s.requeueUnassigned()
		}
		return
	}
	s.assignTo(p, scheduler.Place{Provider: d.Provider, VirtualNode: d.VirtualNode})
}

// assignTo writes the assignment of a pod: Controller.writeAssignment.
func (s *simulation) assignTo(p *pod, at scheduler.Place) {
	s.waiting--
	s.become(p, assigned, at)
	p.object = p.changed(func(o *corev1.Pod) {
		o.Labels[v1alpha1.VirtualNodeLabel], o.Labels[v1alpha1.ProviderLabel] = at.VirtualNode, at.Provider
		o.Annotations[v1alpha1.AssignedAtAnnotation] = s.clock.now.UTC().Format(time.RFC3339Nano)
		o.Status = startingStatus()
	})
	took, moved := s.state.ObserveAssignmentWritten(p.object.UID)
	s.recordAssignment(p, s.clock.now, took, moved)
	s.reconcile(p)
	s.reported(p, s.providers[at.Provider].start.at(p.share), func() { s.started(p) })
}

// become records that a pod is in another phase.
func (s *simulation) become(p *pod, phase phase, at scheduler.Place) {
	p.phase, p.place = phase, at
	p.step++
}

// changed returns a copy of a pod with a change.
func (p *pod) changed(change func(*corev1.Pod)) *corev1.Pod {
	object := *p.object
	object.Labels, object.Annotations = maps.Clone(object.Labels), maps.Clone(object.Annotations)
	if object.Labels == nil {
		object.Labels = map[string]string{}
	}
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	change(&object)
	return &object
}

// reported runs a step of a pod at its provider after a time, unless the pod has left it by then. The step of a provider
// that does not answer is reported when it does.
func (s *simulation) reported(p *pod, after time.Duration, step func()) {
	number := p.step
	s.after(after, func() {
		at := s.providers[p.place.Provider]
		switch {
		case p.step != number:
		case at.silent:
			at.unseen = append(at.unseen, func() {
				if p.step == number {
					step()
				}
			})
		default:
			step()
		}
	})
}

// check reconciles a pod after a time, unless it is checked before. 0 is not at all.
func (s *simulation) check(p *pod, after time.Duration) {
	p.checked++
	if after <= 0 {
		return
	}
	number := p.checked
	s.after(after, func() {
		if p.checked == number {
			s.reconcile(p)
		}
	})
}

func (s *simulation) checkAll(names []types.NamespacedName) {
	slices.SortFunc(names, func(x, y types.NamespacedName) int { return strings.Compare(x.String(), y.String()) })
	for _, name := range names {
		if p := s.pods[name]; p != nil && p.phase == assigned {
			s.check(p, time.Millisecond)
		}
	}
}

// started reports that a pod runs.
func (s *simulation) started(p *pod) {
	now := s.clock.now
	p.object = p.changed(func(o *corev1.Pod) { o.Status = runningStatus(now, true) })
	p.runs = now
	s.reported(p, p.left, func() { s.ended(p) })
	s.reconcile(p)
}

// ended reports that a pod has ended, and that it is deleted.
func (s *simulation) ended(p *pod) {
	now, at := s.clock.now, p.place
	s.become(p, gone, scheduler.Place{})
	p.checked++
	p.object = p.changed(func(o *corev1.Pod) { o.Status = endedStatus(now) })
	s.state.ObserveEnded(p.object, at)
	s.state.ObserveGone(p.name, p.object.UID)
	delete(s.pods, p.name)
	if delete(s.replicas[p.key], p); len(s.replicas[p.key]) == 0 {
		delete(s.replicas, p.key)
	}
	s.charge(p, now)
	p.end(now)
	s.requeueUnassigned()
	s.checkAll(s.state.NextToMoveIn(p.name.Namespace))
}

// reconcile takes a pod that is at a provider a step further: Controller.reconcileAssigned and release.
func (s *simulation) reconcile(p *pod) {
	switch p.phase {
	case assigned:
		s.reconcileAssigned(p)
	case leaves:
		s.release(p)
	case waits, gone:
	}
}

func (s *simulation) reconcileAssigned(p *pod) {
	// 1. Record its new state.
	s.state.ObserveAssigned(p.object, p.place)
	if !p.runs.IsZero() {
		s.state.ObserveStarted(p.object, p.runs.Sub(v1alpha1.AssignedAt(p.object)))
	}
	at := s.state.VirtualNode(p.place)
	s.markUnreachable(p, !at.UnreachableSince.IsZero() && !at.MovesSuspended)

	// 2. Must it leave?
	reason, recheck := eviction.Of(p.object, at, p.criteria.Rules, v1alpha1.AssignedAt(p.object), s.clock.now)
	if reason == eviction.None {
		s.state.ObserveStays(p.object.UID, p.object.Status.Phase == corev1.PodRunning)
		if placement.Available(p.object) {
			s.checkAll(s.state.NextToMove(p.object))
		}
		s.check(p, recheck)
		return
	}
	if reason == eviction.Drained && !at.Terminating {
		turn := s.state.MayMove(p.object, s.replicasOf(p))
		if !turn.May {
			s.check(p, replicasRetry)
			return
		}
		s.checkAll(s.state.NextToMove(p.object))
	}
	if at.UnreachableSince.IsZero() && s.providers[p.place.Provider].silent {
		s.check(p, leavingRecheck) // It does not answer whether the pod has ended.
		return
	}
	if delay := s.state.MoveDelay(p.object.UID); delay > 0 {
		s.check(p, delay)
		return
	}
	if reason == eviction.Unreachable && !s.fitsElsewhere(p) {
		silent := s.clock.Since(at.FailoverFrom)
		s.check(p, min(max(s.probeInterval, silent/10), longestNowhere))
		return
	}
	s.evict(p, reason)
}

// markUnreachable has a pod not Ready while its provider cannot be reached: its replicas count it as unavailable.
func (s *simulation) markUnreachable(p *pod, unreachable bool) {
	if !p.runs.IsZero() && placement.Ready(p.object) == unreachable {
		p.object = p.changed(func(o *corev1.Pod) { o.Status = runningStatus(p.runs, !unreachable) })
	}
}

func (s *simulation) replicasOf(p *pod) disruption.Replicas {
	among := disruption.Replicas{Namespace: p.key.namespace, Key: p.key.key}
	for replica := range s.replicas[p.key] {
		among.Pods = append(among.Pods, replica.object)
	}
	among.MaxUnavailable = p.criteria.Rules.Unavailable(len(among.Pods))
	return among
}

// fitsElsewhere reports whether another provider fits a pod, and reserves its capacity there.
func (s *simulation) fitsElsewhere(p *pod) bool {
	d := s.state.ReserveElsewhere(p.criteria.Pod(p.object, p.namespace), p.criteria.Policy)
	if d.VirtualNode == "" {
		s.recordStay(s.state.ObserveNowhere(p.object.UID))
	}
	return d.VirtualNode != ""
}

// evict begins a move.
func (s *simulation) evict(p *pod, why eviction.Reason) {
	now := s.clock.now
	s.become(p, leaves, p.place)
	if !p.runs.IsZero() && !p.spec.RestartsOnMove {
		p.left = max(0, p.left-now.Sub(p.runs))
	}
	p.runs = time.Time{}
	p.object = p.changed(func(o *corev1.Pod) {
		delete(o.Labels, v1alpha1.VirtualNodeLabel)
		delete(o.Labels, v1alpha1.ProviderLabel)
		o.Annotations[v1alpha1.MovingFromAnnotation] = p.place.VirtualNode
		o.Annotations[v1alpha1.MovingFromProviderAnnotation] = p.place.Provider
	})
	s.charge(p, now)
	s.recordEviction(p, why)
	s.requeueUnclean(s.state.ObserveEvicted(p.object, p.place))
	p.object = p.changed(func(o *corev1.Pod) { o.Status = corev1.PodStatus{Phase: corev1.PodPending} })
	s.state.ObserveAssigned(p.object, p.place) // It takes capacity there until it has left.
	if s.state.VirtualNode(p.place).UnreachableSince.IsZero() {
		s.check(p, max(time.Millisecond, s.providers[p.place.Provider].stop))
		return
	}
	s.check(p, time.Millisecond)
}

// release assigns a pod again that leaves a provider, when it is gone there, or the provider is not waited for.
func (s *simulation) release(p *pod) {
	at, rules := s.state.VirtualNode(p.place), p.criteria.Rules
	switch unreachable := !at.UnreachableSince.IsZero(); {
	case !unreachable && s.providers[p.place.Provider].silent, unreachable && at.MovesSuspended,
		unreachable && rules.Failover == v1alpha1.FailoverNever:
		s.check(p, s.probeInterval)
		return
	case unreachable:
		if left := rules.FailoverAfter - s.clock.Since(at.FailoverFrom); left > 0 {
			s.check(p, left)
			return
		}
		s.requeueUnclean(s.state.ObserveGivenUp(p.place))
	}
	s.state.ObserveLeft(p.object, p.place)
	s.become(p, waits, scheduler.Place{})
	p.object = p.changed(func(o *corev1.Pod) {
		delete(o.Annotations, v1alpha1.MovingFromAnnotation)
		delete(o.Annotations, v1alpha1.MovingFromProviderAnnotation)
	})
	s.waiting++
	s.requeueUnassigned()
	s.assign(p)
}

// requeueUnclean refreshes a provider soon; "" is none.
func (s *simulation) requeueUnclean(id string) {
	if id != "" {
		s.after(time.Millisecond, func() { s.refresh(s.providers[id]) })
	}
}

// startingStatus is the status of a pod that its provider has begun to start: it counts as taken, however long it takes.
func startingStatus() corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
		}},
	}
}

func runningStatus(since time.Time, ready bool) corev1.PodStatus {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}},
		}},
	}
}

func endedStatus(at time.Time) corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodSucceeded,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}},
		}},
	}
}
