package state

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/queue"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// pod is the record of one pod of the broker's node.
type pod struct {
	name types.NamespacedName
	// owner is to whom the pod is counted (placement.OwnerOf); "" is not known.
	owner string
	// shadow is the UID of the ShadowPod that the pod was made of, "" if of none. account is the one in which it
	// counts.
	shadow  types.UID
	account scheduler.Account
	// admitted means that the pod is or was assigned, or succeeds an assigned pod of the same ShadowPod: no grant
	// bounds it.
	admitted bool
	// assumed means that the cache does not show a decision yet, uncertain that it is not known whether the decision
	// was written.
	assumed, uncertain bool
	// unassigned means that no provider fitted when the pod was tried last; queued is its state in the queue.
	unassigned bool
	queued     queue.Pod
	// created is when the pod was created, and hasClaims whether it has volumes of claims, as seen when it was assigned last.
	// reclaimed means that it leaves its provider for others (reclaim).
	created              time.Time
	hasClaims, reclaimed bool
	// requests are the requests of the pod while it waits for a provider, as it was tried last; nil if it never waited.
	requests resources.Amounts
	// asks are the requests with which it was tried last.
	asks resources.Amounts
	// left is the VirtualNode that the pod, which is moving, has left: it no longer exists there.
	left scheduler.Place
	// evictedAt is when this leader took the pod away from its provider; zero once it is assigned again.
	evictedAt time.Time
	// leavesSince is when this leader first saw that the pod leaves its provider; zero once it is assigned again.
	leavesSince time.Time
	// startedBefore is the latest start of a container when the pod was evicted, nil if it never was. A status with
	// that start is from the old VirtualNode.
	startedBefore *time.Time
	// budget is where the pod stands in the disruption budget of its replicas: it may leave its VirtualNode as planned,
	// or waits for them.
	budget disruption.Pod
	// refusedUntil has, by VirtualNode, the end of the pod's back-off there, as of its last decision, without those
	// that had expired then.
	refusedUntil map[string]time.Time
	// reserved means that capacity elsewhere is reserved for the pod, which is assigned or leaving.
	reserved bool
	// nowhere means that the pod is to leave its provider, and stays because no other fits.
	nowhere bool
	// ended means that the pod has ended: it only takes capacity. disrupted means that its provider ended it.
	ended, disrupted bool
	// pendingAt is where the pod was seen to be Pending.
	pendingAt scheduler.Place
	// start is how far the pod has come at its present assignment.
	start start
	// there is the last known state of the pod, which may leave, at its provider. goneSince is since when it no longer
	// exists there.
	there     Presence
	goneSince time.Time
	// shown means that its status is from a pod at its provider, mayRun that its containers may run there. nameFree
	// means that no provider has an earlier pod of its name.
	shown, mayRun, nameFree bool
	// remaking means that Liqo's controller at its provider may be making it again, because it was evicted or deleted
	// there. deleting means that it was last seen while it was being deleted here, and was not evicted.
	remaking, deleting bool
	// startCounted and runningSeen mean that the start at the present VirtualNode was counted, and traced.
	startCounted, runningSeen bool
}

// Pod is the state of one pod at a moment; it is zero for a pod that is not known.
type Pod struct {
	// HasAccount means that it is known in which account the pod counts.
	HasAccount bool
	// Assumed means that the cache does not show a decision yet, Uncertain that it is not known whether the decision
	// was written.
	Assumed, Uncertain bool
	// Left is the VirtualNode that the pod, which is moving, has left: it no longer exists there.
	Left scheduler.Place
	// EvictedAt is when this leader took the pod away from its provider; zero if it is not moving.
	EvictedAt time.Time
	// GoneSince is since when a leaving pod no longer exists at its provider; zero if it exists there, or that is not
	// known. SeenThere means that the provider last had the pod itself, and not only its ShadowPod.
	GoneSince time.Time
	SeenThere bool
	// NameFree means that no provider has an earlier pod of its name, as far as they were asked.
	NameFree bool
	// Started means that a container of the pod was started at its present VirtualNode, as far as this leader has seen.
	// Its provider may have made it again since.
	Started bool
	// Reclaimed means that an assigned pod has to leave its provider: its consumer uses more than its grant.
	Reclaimed bool
	// PendingAgain is when this leader first saw that an assigned pod, which its provider had begun to run, waits for
	// its containers again, or that its provider has made one at last; zero if it does not. Liqo's ShadowPod controller
	// makes a pod again, under its name, if its node dies, is drained or preempts it.
	PendingAgain time.Time
	// ReservedAt is where capacity is reserved for the pod, since ReservedSince; zero if it is nowhere.
	ReservedAt    scheduler.Place
	ReservedSince time.Time
}

// Pod returns the state of a pod.
func (f *Federation) Pod(uid types.UID) Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[uid]
	if p == nil {
		return Pod{}
	}
	of := Pod{
		HasAccount: p.account != (scheduler.Account{}), Assumed: p.assumed, Uncertain: p.uncertain, Left: p.left,
		EvictedAt: p.evictedAt, GoneSince: p.goneSince, SeenThere: p.there == PodThere, NameFree: p.nameFree,
		Started: p.start.started, PendingAgain: p.start.pendingAgain, Reclaimed: p.reclaimed,
	}
	of.ReservedAt, of.ReservedSince = f.reservedFor(uid)
	return of
}

// start is how far a pod has come at one assignment, as this leader has seen it.
type start struct {
	// assignment is v1alpha1.Assignment.
	assignment string
	// taken means that its provider had begun to run it there. pendingAgain is when it was first seen after that to
	// wait for its containers: the provider has made it again. It is zero if it does not wait again.
	taken        bool
	pendingAgain time.Time
	// started means that a container of the pod was started there.
	started bool
	// unmade means that the provider has had only its ShadowPod for too long.
	unmade bool
}

func newRecord(name types.NamespacedName, uid types.UID) *pod {
	return &pod{name: name, queued: queue.Pod{Name: name, UID: uid}, budget: disruption.NewPod(name)}
}

// record returns the record of a pod, a new one if there is none. Another pod that had the name is forgotten.
func (f *Federation) record(name types.NamespacedName, uid types.UID) *pod {
	if known, ok := f.byName[name]; ok && known != uid {
		f.forget(known)
	}
	p := f.pods[uid]
	if p == nil {
		p = newRecord(name, uid)
		f.pods[uid] = p
		f.byName[name] = uid
	}
	return p
}

func (f *Federation) recordOf(of *corev1.Pod) *pod {
	p := f.record(types.NamespacedName{Namespace: of.Namespace, Name: of.Name}, of.UID)
	f.observeShadow(p, of)
	return p
}

func (f *Federation) forget(uid types.UID) {
	if p := f.pods[uid]; p != nil {
		f.remember(uid, p)
		f.keepForSuccessor(p, uid)
	}
	f.release(scheduler.HolderOf(uid))
	f.limit.Forget(uid)
	f.endReservationFor(uid)
	if p := f.pods[uid]; p != nil {
		f.turns.StopWaiting(&p.budget)
		f.unreserve(p, uid)
		delete(f.byName, p.name)
		delete(f.pods, uid)
	}
}

// ObserveAssigned records that a pod takes capacity at a VirtualNode: the API shows it assigned there, or leaving it.
func (f *Federation) ObserveAssigned(of *corev1.Pod, at scheduler.Place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	if p.uncertain {
		p.evictedAt, p.leavesSince = time.Time{}, time.Time{} // The decision was written after all.
	}
	p.assumed, p.uncertain, p.left, p.unassigned, p.ended = false, false, scheduler.Place{}, false, false
	p.start.observe(of, at, f.cfg.Clock.Now())
	p.shown, p.mayRun = shown(of), true
	switch {
	case of.Labels[v1alpha1.VirtualNodeLabel] == "": // It moves, and the broker has removed its status.
	case p.evictedThere(of):
		p.remaking = true
	case of.DeletionTimestamp == nil:
		p.remaking = false
	}
	p.deleting = of.DeletionTimestamp != nil && !placement.DisruptedThere(of)
	p.admitted = p.admitted || of.Annotations[v1alpha1.AssignedAtAnnotation] != ""
	p.created, p.hasClaims = of.CreationTimestamp.Time, len(placement.ClaimsOf(of)) > 0
	f.observeStart(p, of, at)
	f.assignPod(of, at)
}

// evictedThere reports whether the provider of a pod has evicted or deleted it. An eviction here writes the same
// condition, and then deletes the pod (addConditionAndDeletePod in Kubernetes' pkg/registry/core/pod/storage). One of a
// pod that is being deleted already counts as the provider's: the name of the pod is free 30 s later then.
func (p *pod) evictedThere(of *corev1.Pod) bool {
	return (of.DeletionTimestamp == nil || p.deleting) && placement.DisruptedThere(of)
}

func (s *start) observe(of *corev1.Pod, at scheduler.Place, now time.Time) {
	if assignment := v1alpha1.Assignment(at.VirtualNode, of); s.assignment != assignment {
		*s = start{assignment: assignment}
	}
	s.started = s.started || placement.Started(&of.Status)
	switch {
	case placement.Taken(&of.Status):
		s.taken, s.pendingAgain = true, time.Time{}
	case s.taken && s.pendingAgain.IsZero():
		s.pendingAgain = now
	}
}

// observeStart records that a pod waits at a VirtualNode, or has started there since.
func (f *Federation) observeStart(p *pod, of *corev1.Pod, at scheduler.Place) {
	if isPending(of) {
		p.pendingAt = at
		return
	}
	if there := f.providerAt(at); there != nil && p.pendingAt == at {
		started := there.started[at.VirtualNode]
		started.Last = f.cfg.Clock.Now()
		if assigned := v1alpha1.AssignedAt(of); assigned.After(started.Assigned) {
			started.Assigned = assigned
		}
		there.started[at.VirtualNode] = started
		f.open(there, at)
	}
	p.pendingAt = scheduler.Place{}
}

func isPending(pod *corev1.Pod) bool {
	return pod.Status.Phase == "" || pod.Status.Phase == corev1.PodPending
}

// assignPod counts the forwarded requests of a pod at a VirtualNode: Liqo's virtual kubelet forwards the requests that
// the pod had when its ShadowPod was made, and no later change (RemotePodSpec in Liqo's
// pkg/virtualKubelet/forge/pods.go). Until its status shows that there is a ShadowPod, the pod counts with the most
// that it requested since it was assigned there. After that a resize changes nothing.
func (f *Federation) assignPod(of *corev1.Pod, at scheduler.Place) {
	a := placement.AssignmentOf(of, at)
	before, counted := f.scheduler.Counted(scheduler.HolderOf(of.UID))
	if before != at {
		f.assign(a)
		return
	}
	forwarded := !isPending(of) || len(of.Status.ContainerStatuses) > 0
	for name, amount := range a.Requests {
		switch {
		case name == corev1.ResourcePods:
		case forwarded:
			a.Requests[name] = counted[name]
		default:
			a.Requests[name] = max(amount, counted[name])
		}
	}
	f.assign(a)
}

// ObserveEnded records that a pod which is assigned to a VirtualNode is terminal. It takes capacity there until it is
// gone. ObserveEnded reports whether that was not known.
func (f *Federation) ObserveEnded(of *corev1.Pod, at scheduler.Place) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	known := p.ended
	f.turns.StopWaiting(&p.budget)
	f.unreserve(p, of.UID)
	if !known {
		f.queue.Open(at) // It is not counted as a pod any more.
	}
	before, there := *p, p.there
	*p = *newRecord(p.name, of.UID)
	p.shadow, p.account, p.disrupted = before.shadow, before.account, placement.DisruptedThere(of)
	p.admitted = before.admitted || before.assumed || of.Annotations[v1alpha1.AssignedAtAnnotation] != ""
	// Liqo's controller may still make one that its provider was not seen to have: a webhook for pods holds the
	// creation.
	evicted := before.evictedThere(of) && !placement.Collected(&of.Status)
	p.remaking = before.remaking || evicted || placement.EndUnknown(&of.Status)
	p.deleting = of.DeletionTimestamp != nil && !placement.DisruptedThere(of)
	p.ended, p.there, p.shown = true, there, shown(of)
	p.mayRun = mayRun(of) || unmade(of) && there != PodThere || p.remaking
	f.limit.Forget(of.UID)
	f.assignPod(of, at)
	return !known
}

// ObserveGone records that a pod was deleted, or is terminal and assigned to no VirtualNode. It reports whether the pod
// was known. The UID "" matches any pod of the name.
func (f *Federation) ObserveGone(name types.NamespacedName, uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.byName[name]
	if !ok || (uid != "" && known != uid) {
		return false
	}
	if uid != "" {
		f.pods[known].shadow = "" // It has ended.
	}
	f.forget(known)
	return true
}

// ObserveWaits records that a pod waits for a provider, for any reason, with its requests.
func (f *Federation) ObserveWaits(of *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recordOf(of).requests = placement.AssignmentOf(of, scheduler.Place{}).Requests
}

// ObserveLeft records that a moving pod no longer exists at its old VirtualNode; its capacity there is free. It
// continues to count in the grant of its consumer.
func (f *Federation) ObserveLeft(of *corev1.Pod, from scheduler.Place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	p.left = from
	f.forgetEarlier(p.name)
	if of.Annotations[v1alpha1.AssignedAtAnnotation] == "" && !p.admitted {
		f.release(scheduler.HolderOf(of.UID)) // It waited for an earlier pod of its name.
		return
	}
	p.admitted = true
	f.admit(p, scheduler.HolderOf(of.UID), placement.AssignmentOf(of, scheduler.Place{}).Requests)
}

// Hold notes that a pod waits for something that no provider can change: nothing is reserved for it, and no change of a
// provider has it tried.
func (f *Federation) Hold(of *scheduler.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.record(types.NamespacedName{Namespace: of.Namespace, Name: of.Name}, of.UID)
	f.unreserve(p, of.UID)
	p.owner, p.unassigned, p.queued = of.Owner, false, queue.Pod{Name: p.name, UID: of.UID}
	f.endReservationFor(of.UID)
}

// Assume chooses a provider for a pod and reserves its capacity there (kube-scheduler decides apart from that). Without
// one, the decision has no VirtualNode and the pod counts as unassigned.
func (f *Federation) Assume(of *scheduler.Pod, policy *scheduler.Policy) scheduler.Decision {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.record(types.NamespacedName{Namespace: of.Namespace, Name: of.Name}, of.UID)
	f.unreserve(p, of.UID)
	p.owner = of.Owner
	now, evaluates := f.cfg.Clock.Now(), scheduler.Evaluates(of, policy)
	p.refusedUntil = maps.Clone(of.Refused)
	maps.DeleteFunc(p.refusedUntil, func(_ string, until time.Time) bool { return !until.After(now) })
	p.asks = of.Requests
	inTurn := p.queued.InTurn()
	f.queue.BeginTry(&p.queued, !p.unassigned, of.Consumer, f.scheduler.Demand(of.Requests), scheduler.ReadsResources(of, policy), now)
	if lacks := f.beyondGrant(p, of); lacks != "" {
		return beyond(lacks)
	}
	p.unassigned = p.unassigned || evaluates // Changes meanwhile may concern the pod.
	d, known := f.choose(p, of, policy)
	if !known {
		return d
	}
	if evaluates { // Others may have been assigned meanwhile.
		if lacks := f.beyondGrant(p, of); lacks != "" {
			return beyond(lacks)
		}
		f.scheduler.Confirm(f.cfg.Clock.Now(), of, policy, &d)
	}
	if d.VirtualNode != "" && of.First && !inTurn {
		at := scheduler.Place{Provider: d.Provider, VirtualNode: d.VirtualNode}
		if d.Held = f.overtakes(of.Consumer, at); d.Held != "" {
			d.Provider, d.VirtualNode, p.unassigned = "", "", true
			d.HeldFor = now.Sub(p.queued.Hold(now))
			return d
		}
	}
	p.unassigned = d.VirtualNode == ""
	if p.unassigned {
		f.queue.EndTry(&p.queued, d.Verdicts)
		return d
	}
	p.queued = queue.Pod{Name: p.name, UID: of.UID}
	p.assumed, p.startCounted, p.runningSeen, p.reclaimed = true, false, false, false
	p.mayRun, p.shown, p.remaking = true, false, false // It may be forwarded before the cache shows it.
	at := scheduler.Place{Provider: d.Provider, VirtualNode: d.VirtualNode}
	f.assign(scheduler.Assignment{UID: of.UID, Place: at, App: of.App, Peer: of.Peer, Requests: of.Requests})
	f.endReservationFor(of.UID)
	if chosen := f.providers[d.Provider]; chosen != nil {
		chosen.assignments++
		f.observeTrial(chosen, at, of.Owner)
	}
	return d
}

// choose chooses a provider for a pod. Expressions are evaluated on a copy, without mu, which the caller holds. Others
// observe and decide meanwhile: Confirm chooses the best provider that still fits. None is chosen for a pod that was
// deleted or has ended, for which known is false.
func (f *Federation) choose(p *pod, of *scheduler.Pod, policy *scheduler.Policy) (d scheduler.Decision, known bool) {
	if !scheduler.Evaluates(of, policy) {
		return f.scheduler.Decide(f.cfg.Clock.Now(), of, policy), true
	}
	d = f.decideUnlocked(f.scheduler.Snapshot(of), of, policy)
	if f.pods[of.UID] != p || p.ended {
		d.Provider, d.VirtualNode = "", ""
		return d, false
	}
	return d, true
}

func (f *Federation) decideUnlocked(snapshot *scheduler.State, of *scheduler.Pod, policy *scheduler.Policy) scheduler.Decision {
	f.mu.Unlock()
	defer f.mu.Lock()
	return snapshot.Decide(f.cfg.Clock.Now(), of, policy)
}

// ReserveElsewhere decides, as Assume would, where a pod could go that is assigned to an unreachable provider. The
// capacity there is reserved until the pod is decided about, stays or is gone: no more pods leave than fit elsewhere.
// The decision has no VirtualNode if there is no place.
func (f *Federation) ReserveElsewhere(of *scheduler.Pod, policy *scheduler.Policy) scheduler.Decision {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.record(types.NamespacedName{Namespace: of.Namespace, Name: of.Name}, of.UID)
	f.unreserve(p, of.UID)
	other := *of
	other.Use = scheduler.ReservedElsewhere
	d, known := f.choose(p, &other, policy)
	if known && scheduler.Evaluates(&other, policy) {
		f.scheduler.Confirm(f.cfg.Clock.Now(), &other, policy, &d)
	}
	if d.VirtualNode != "" {
		p.reserved, p.nowhere = true, false
		f.assign(scheduler.Assignment{
			UID: other.UID, Use: other.Use,
			Place: scheduler.Place{Provider: d.Provider, VirtualNode: d.VirtualNode}, Peer: of.Peer, Requests: of.Requests,
		})
	}
	return d
}

// unreserve frees the capacity that ReserveElsewhere reserved for a pod.
func (f *Federation) unreserve(p *pod, uid types.UID) {
	if p.reserved {
		p.reserved = false
		f.release(scheduler.Holder{UID: uid, Use: scheduler.ReservedElsewhere})
	}
}

// ObserveNowhere records that a pod, which is to leave its provider, stays because nothing else fits: it is not one of
// those that move. It reports whether that is new.
func (f *Federation) ObserveNowhere(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit.Forget(uid)
	p := f.pods[uid]
	if p == nil {
		return false
	}
	f.turns.StopWaiting(&p.budget)
	p.budget.Stays()
	if p.nowhere {
		return false
	}
	p.nowhere = true
	return true
}

// Forget frees the capacity of a decision that was not written. An admitted pod continues to count in its account.
func (f *Federation) Forget(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[uid]
	if _, requests := f.scheduler.Counted(scheduler.HolderOf(uid)); p != nil && p.admitted && requests != nil {
		f.admit(p, scheduler.HolderOf(uid), requests)
	} else {
		f.release(scheduler.HolderOf(uid))
	}
	if p != nil {
		p.assumed, p.uncertain = false, false
	}
}

// ObserveUncertain records that a decision may or may not have been written. Its capacity stays reserved.
func (f *Federation) ObserveUncertain(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[uid]; p != nil {
		p.uncertain = true
	}
}

// ObserveWritten records that the API server has a decision which was uncertain, or another one. The pod counts as
// assumed: the cache does not show it yet.
func (f *Federation) ObserveWritten(of *corev1.Pod, at scheduler.Place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	p.assumed, p.uncertain, p.evictedAt, p.leavesSince, p.unassigned = true, false, time.Time{}, time.Time{}, false
	p.there, p.goneSince = unseen, time.Time{}
	p.mayRun = true
	f.assignPod(of, at)
}

// ObserveStays records that an assigned pod need not move, and whether it has started: it no longer waits for the limit
// of moves, nor for its replicas. Once it has started its last move is over.
func (f *Federation) ObserveStays(uid types.UID, started bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if started {
		f.limit.Forget(uid)
	} else {
		f.limit.Dequeue(uid)
	}
	p := f.pods[uid]
	if p == nil {
		return
	}
	f.turns.StopWaiting(&p.budget)
	f.unreserve(p, uid)
	p.nowhere, p.there = false, unseen
	if p.evictedAt.IsZero() {
		p.budget.Stays() // Otherwise it moves, and was read before.
	}
}

// ObserveEvicted records that a pod was evicted from a VirtualNode. If the provider is unreachable, it may still run
// the pod: the provider's id is returned if it was not unclean before.
func (f *Federation) ObserveEvicted(of *corev1.Pod, from scheduler.Place) (unclean string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	started := lastStart(of)
	p.left, p.evictedAt, p.startedBefore, p.nowhere = scheduler.Place{}, f.cfg.Clock.Now(), &started, false
	p.leavesSince, p.goneSince = p.evictedAt, time.Time{}
	if p.there == unseen && shown(of) && !p.remaking {
		p.there = PodThere
	}
	f.turns.StopWaiting(&p.budget)
	provider := f.providerAt(from)
	if provider == nil {
		return ""
	}
	provider.tracker.PodMovedAway()
	if provider.unreachableSince.IsZero() {
		return ""
	}
	return provider.markUnclean(from.Provider)
}

// ObserveLeaves records that a pod is leaving its provider, and returns since when this leader has seen that.
func (f *Federation) ObserveLeaves(of *corev1.Pod) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	if p.leavesSince.IsZero() {
		p.leavesSince = f.cfg.Clock.Now()
	}
	return p.leavesSince
}

// ObserveGivenUp records that a pod was not waited for at a VirtualNode whose provider cannot be reached. The
// provider's id is returned if it was not unclean before.
func (f *Federation) ObserveGivenUp(at scheduler.Place) (unclean string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if provider := f.providerAt(at); provider != nil {
		return provider.markUnclean(at.Provider)
	}
	return ""
}

// ObserveAssignmentWritten records that the API has accepted a decision. It returns how long the pod was moving; false
// if it was not, or if an earlier leader evicted it.
func (f *Federation) ObserveAssignmentWritten(uid types.UID) (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[uid]
	if p == nil {
		return 0, false
	}
	evictedAt := p.evictedAt
	p.evictedAt, p.leavesSince, p.goneSince, p.there = time.Time{}, time.Time{}, time.Time{}, unseen
	return f.cfg.Clock.Now().Sub(evictedAt), !evictedAt.IsZero()
}

// RefusalReason is why a VirtualNode did not take a pod, as the metrics label it.
type RefusalReason string

// The reasons of refusals.
const (
	// Refused means that the provider's admission refused the pod.
	Refused RefusalReason = "refused"
	// PendingTooLong means that the pod did not start in time.
	PendingTooLong RefusalReason = "pending_too_long"
)

// Refusal is a pod that a VirtualNode did not take.
type Refusal struct {
	By     scheduler.Place
	Reason RefusalReason
	// Until is when the pod may be sent there again.
	Until time.Time
	// LacksRoom means that the provider lacks capacity for the pod's requests: the amount is withheld until then. Lacks
	// is the resource that it lacks; the pod's other requests are withheld only if it requests none of that resource.
	LacksRoom bool
	Lacks     corev1.ResourceName
	// Owner is to whom the pod is counted.
	Owner string
	// Again means that the pod has failed there before: it counts as one failure of the provider. OwnFault means that
	// the pod could start nowhere: it does not count as a failure.
	Again, OwnFault bool
}

// ObserveRefused records a refusal. The pod's back-off is not recorded here: Assume reads it from its argument
// (Refused).
func (f *Federation) ObserveRefused(of *corev1.Pod, r Refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if by := f.providerAt(r.By); by != nil {
		// A pod that has run there is no failed start.
		if p := f.pods[of.UID]; !r.Again && !r.OwnFault && (p == nil || !p.start.taken) {
			by.tracker.PodFailed(r.Owner)
			if r.Reason == PendingTooLong {
				f.observeNotStarted(by, r.By, r.Owner, 1)
			}
		}
		by.refusals[r.Reason]++
	}
	if !r.LacksRoom {
		return
	}
	requests := resources.PodRequests(&of.Spec)
	delete(requests, corev1.ResourcePods)
	if amount := requests[r.Lacks]; amount > 0 {
		requests = resources.Amounts{r.Lacks: amount}
	}
	withheld := scheduler.Assignment{UID: of.UID, Use: scheduler.Withheld, Place: r.By, Requests: requests}
	f.withheld[withheld.Holder()] = r.Until
	f.assign(withheld)
}

// expire forgets expired refusals, names and predecessors: pods that waited for their end are tried again.
func (f *Federation) expire(now time.Time) {
	f.expireNames(now)
	f.expirePredecessors(now)
	for _, p := range f.pods {
		for virtualNode, until := range p.refusedUntil {
			if !until.After(now) {
				delete(p.refusedUntil, virtualNode)
				p.queued.RetryNext()
			}
		}
	}
	for holder, until := range f.withheld {
		if !until.After(now) {
			delete(f.withheld, holder)
			f.release(holder)
		}
	}
}

// ObserveStarted records that a container of a pod was started; took is the time since the pod was assigned. It reports
// whether that start was not counted before.
func (f *Federation) ObserveStarted(of *corev1.Pod, took time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	if p.startCounted {
		return false
	}
	p.startCounted = true
	place := placement.AssignedTo(of)
	if at := f.providerAt(place); at != nil {
		at.tracker.PodStarted(p.owner, took)
		f.open(at, place)
	}
	return true
}

// ObserveRunning records that the status of an assigned pod shows it Running. It reports true once for each assignment,
// when that status is the present VirtualNode's.
func (f *Federation) ObserveRunning(of *corev1.Pod) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	if p.runningSeen || p.startedBefore != nil && p.startedBefore.Equal(lastStart(of)) {
		return false
	}
	p.runningSeen = true
	return true
}

// lastStart returns when the last container of a pod started; zero if none runs.
func lastStart(of *corev1.Pod) time.Time {
	var last time.Time
	for i := range of.Status.ContainerStatuses {
		if running := of.Status.ContainerStatuses[i].State.Running; running != nil && running.StartedAt.After(last) {
			last = running.StartedAt.Time
		}
	}
	return last
}
