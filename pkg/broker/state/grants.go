package state

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/queue"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// successorWithin is how long the part of a grant that a pod had is kept for the next pod of the same ShadowPod.
const successorWithin = time.Minute

// predecessor is a pod that is gone, and whose ShadowPod may have another one made.
type predecessor struct {
	// shadow is the UID of the ShadowPod.
	shadow types.UID
	until  time.Time
}

// keptFor holds the part of a grant that is kept for the next pod of a name.
func keptFor(name types.NamespacedName) scheduler.Holder {
	return scheduler.Holder{Use: scheduler.KeptForSuccessor, Name: name}
}

// SetGrant records the grant of a consumer; nil forgets it, and then the consumer is not bounded.
func (f *Federation) SetGrant(consumer string, g *scheduler.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grown[consumer] = true
	if g == nil {
		delete(f.grants, consumer)
		return
	}
	f.grants[consumer] = g
}

// HasGrant reports whether a grant of a consumer is recorded.
func (f *Federation) HasGrant(consumer string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.grants[consumer] != nil
}

// ObserveAccount records in which account a pod counts. It does not change while the pod is counted, although a
// consumer may change the labels of its pods.
func (f *Federation) ObserveAccount(of *corev1.Pod, account scheduler.Account) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.recordOf(of)
	if p.account != (scheduler.Account{}) || account == (scheduler.Account{}) {
		return
	}
	p.account = account
	if at, requests := f.scheduler.Counted(scheduler.HolderOf(of.UID)); requests != nil {
		a := placement.AssignmentOf(of, at)
		a.Requests = requests
		f.assign(a)
	}
}

// beyondGrant returns by how much a pod that was not admitted before requests more than is left of its consumer's grant,
// and then has it wait for that; "" if it does not. An admitted pod counts from now on, also while no provider fits.
func (f *Federation) beyondGrant(p *pod, of *scheduler.Pod) (lacks string) {
	_, counted := f.scheduler.Counted(scheduler.HolderOf(of.UID))
	if counted == nil {
		p.account = of.Account
	}
	p.admitted = p.admitted && !of.Reclaimed
	if p.account == (scheduler.Account{}) {
		return ""
	}
	if !of.First || p.admitted {
		p.admitted = true
		if counted == nil {
			f.admit(p, scheduler.HolderOf(of.UID), of.Requests)
		}
		return ""
	}
	if counted != nil {
		f.release(scheduler.HolderOf(of.UID)) // It was counted while it waited for an earlier pod of its name.
	}
	g := f.grants[p.account.Consumer]
	if g == nil {
		return ""
	}
	lacks = f.scheduler.Budget(p.account.Consumer, g).Beyond(p.account.Creator, p.queued.Demand())
	if lacks != "" {
		p.unassigned = true
		p.queued.AwaitGrant()
	}
	return lacks
}

// beyond is the decision about a pod that is beyondGrant.
func beyond(lacks string) scheduler.Decision {
	return scheduler.Decision{Result: verdict.Result{Beyond: lacks}}
}

// admit counts an admitted pod, which is at no provider, in its account.
func (f *Federation) admit(p *pod, as scheduler.Holder, requests resources.Amounts) {
	if p.account == (scheduler.Account{}) {
		f.release(as)
		return
	}
	f.assign(scheduler.Assignment{UID: as.UID, Use: as.Use, Name: as.Name, Account: p.account, Requests: requests})
}

// retryWithinGrants has the pods tried next, longest waiting first and at most queue.MaxWoken, that fit into a grant
// which has grown, or of which a part became free. More means that others may follow.
func (f *Federation) retryWithinGrants() (more bool) {
	if len(f.grown) == 0 {
		return false
	}
	budgets := make(map[string]*scheduler.Budget, len(f.grown))
	for consumer := range f.grown {
		if g := f.grants[consumer]; g != nil {
			budgets[consumer] = f.scheduler.Budget(consumer, g)
		}
	}
	// A consumer with a pod that fits stays: another pod may fit, if that one is not assigned.
	var waiting []*pod
	waiting, f.grown = f.fitIntoGrants(budgets)
	for _, p := range waiting {
		of := budgets[p.account.Consumer]
		if of != nil && !of.Fits(p.account.Creator, p.queued.Demand()) {
			continue
		}
		if of != nil {
			of.Take(p.account.Creator, p.queued.Demand())
		}
		p.queued.RetryWithinGrant()
	}
	return len(waiting) == queue.MaxWoken
}

// fitIntoGrants returns the pods, in the order of their turns and no more than queue.MaxWoken, each of which fits into
// the budget of its consumer, and the consumers of all that fit. No grant bounds a consumer without a budget any more.
// Pods that cannot be among them are left out on the way: to sort all of 10,000 takes half as long again
// (BenchmarkWakeWithinGrants).
func (f *Federation) fitIntoGrants(budgets map[string]*scheduler.Budget) (next []*pod, consumers map[string]bool) {
	compare := func(x, y *pod) int { return queue.Compare(&x.queued, &y.queued) }
	longest := map[string]*longestWaiting{}
	consumers = map[string]bool{}
	for _, p := range f.pods {
		consumer := p.account.Consumer
		if !p.unassigned || !p.queued.AwaitsGrant() || !f.grown[consumer] {
			continue
		}
		if budget := budgets[consumer]; budget != nil && !budget.Fits(p.account.Creator, p.queued.Demand()) {
			continue
		}
		consumers[consumer] = true
		if longest[consumer] == nil {
			longest[consumer] = &longestWaiting{}
		}
		of := longest[consumer]
		if of.last != nil && compare(p, of.last) > 0 {
			continue
		}
		if of.pods = append(of.pods, p); len(of.pods) == 2*queue.MaxWoken {
			slices.SortFunc(of.pods, compare)
			of.pods = of.pods[:queue.MaxWoken]
			of.last = of.pods[queue.MaxWoken-1]
		}
	}
	var queued []*queue.Pod
	by := map[*queue.Pod]*pod{}
	for _, of := range longest {
		for _, p := range of.pods {
			queued, by[&p.queued] = append(queued, &p.queued), p
		}
	}
	for _, p := range queue.Fairly(queued, f.shares()) {
		if len(next) < queue.MaxWoken {
			next = append(next, by[p])
		}
	}
	return next, consumers
}

// longestWaiting are pods of one consumer. queue.MaxWoken of them have waited for longer than last, or as long; nil if
// there are fewer.
type longestWaiting struct {
	pods []*pod
	last *pod
}

// keepForSuccessor keeps the counted requests of a pod that is gone. Its provider may have evicted it: then Liqo
// creates another pod from the same ShadowPod, which its quota has admitted before. A grant that has shrunk since must
// not keep that pod waiting. Liqo creates no pod from a ShadowPod whose pod has ended, unless the pod was evicted
// before Liqo saw the end. A pod that was never assigned counts only while it waits for an earlier one of its name.
func (f *Federation) keepForSuccessor(p *pod, uid types.UID) {
	_, requests := f.scheduler.Counted(scheduler.HolderOf(uid))
	if p.shadow == "" || requests == nil || p.reclaimed || !p.admitted && !p.assumed || p.ended && !p.disrupted {
		return
	}
	f.predecessors[p.name] = predecessor{shadow: p.shadow, until: f.cfg.Clock.Now().Add(successorWithin)}
	f.admit(p, keptFor(p.name), requests)
}

// observeShadow records from which ShadowPod a pod was made. If it succeeds an assigned pod of the same ShadowPod, it
// takes over the kept part of the grant.
func (f *Federation) observeShadow(p *pod, of *corev1.Pod) {
	p.shadow = placement.ShadowOf(of)
	before, kept := f.predecessors[p.name]
	if !kept {
		return
	}
	account := f.scheduler.AccountOf(keptFor(p.name))
	_, requests := f.scheduler.Counted(keptFor(p.name))
	f.forgetPredecessor(p.name)
	if before.shadow == p.shadow {
		p.admitted, p.account = true, account
		f.admit(p, scheduler.HolderOf(of.UID), requests)
	}
}

// KeptForSuccessor returns the UID of the ShadowPod for whose next pod, which has this name, a part of a grant is kept;
// "" if there is none.
func (f *Federation) KeptForSuccessor(name types.NamespacedName) types.UID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.predecessors[name].shadow
}

// ObserveNoSuccessor records that Liqo makes no other pod of a name: its ShadowPod is gone.
func (f *Federation) ObserveNoSuccessor(name types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetPredecessor(name)
}

func (f *Federation) forgetPredecessor(name types.NamespacedName) {
	delete(f.predecessors, name)
	f.release(keptFor(name))
}

func (f *Federation) expirePredecessors(now time.Time) {
	for name, before := range f.predecessors {
		if !now.Before(before.until) {
			f.forgetPredecessor(name)
		}
	}
}
