package broker

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// core is what the broker believes between two looks at the API: who is assigned where, decisions that the caches do
// not show yet, refusals, and how each provider does. It makes no request. All of it is guarded by mu.
type core struct {
	mu    sync.Mutex
	state *scheduler.State
	// pods are those that the state, the assumptions or the refusals speak of, by name.
	pods map[types.NamespacedName]types.UID
	// assumed are the decisions written to the API that the cache does not show yet, doubted those of them of which it
	// is not known whether they were written.
	assumed map[types.UID]string
	doubted map[types.UID]struct{}
	// left has the VirtualNode that a pod on its way has left for good.
	left map[types.UID]string
	// sentAway is when a pod on its way was taken away from where it was.
	sentAway map[types.UID]time.Time
	// turns are of the pods that must move.
	turns turns
	// refused has, by pod and VirtualNode, until when not to ask again.
	refused map[types.UID]map[string]time.Time
	// disbelieved are amounts that a provider turned out not to have, by the name under which the state holds them.
	disbelieved map[types.UID]time.Time
	// waiting are the pods for which nothing fitted.
	waiting map[types.NamespacedName]struct{}
	// started are the pods whose start has been counted, running those that are traced and have been seen Running.
	started, running map[types.UID]struct{}
	// ranBefore is when the containers of a pod that was moved started last where it was before: as long as its status says
	// so, it is the status from there.
	ranBefore map[types.UID]time.Time
	// stale are the pods whose mapped address was removed because they have another one.
	stale map[types.UID]struct{}

	providers map[string]*providerBelief
	// homeOf is the provider of a VirtualNode, formerHome that of one which is gone.
	homeOf, formerHome map[string]string

	// suspicionWindow is how far apart the providers may vanish for the broker to suspect itself, suspectedAt the last
	// probe at which it did.
	suspicionWindow time.Duration
	suspectedAt     time.Time
}

// providerBelief is what is known of one provider besides its status in the API.
type providerBelief struct {
	tracker *kpi.Tracker
	last    observation
	// looked says that it was probed by this leader.
	looked bool
	// misses are the probes failed in a row, firstMiss is when the first of them was.
	misses    int
	firstMiss time.Time
	// lost is since when it counts as unreachable; zero while it does not.
	lost time.Time
	// unclean says that pods were moved away while it could not be reached, and it may still run them.
	unclean  bool
	enabled  bool
	draining bool
	// closing are the VirtualNodes that are being deleted: their pods leave while their virtual kubelets still run.
	closing map[string]bool
	// strays are the VirtualNodes whose virtual kubelets serve another Node than the broker's.
	strays map[string]bool
	// standing is what the scheduler was last told, without what changes all the time; outlook is what else decides
	// about the pods there.
	standing scheduler.Provider
	outlook  string
	// remoteNamespaces are those to which local ones are mapped, or were until a moment ago; nil while not known.
	remoteNamespaces map[string]string
	statusWritten    time.Time
}

// missesUntilLost is how many probes in a row must fail.
const missesUntilLost = 2

func newCore(cfg *Config) *core {
	return &core{
		turns: newTurns(cfg.MovesPerSecond, cfg.MovesBurst), suspicionWindow: cfg.Times.SuspicionWindow,
		state: scheduler.NewState(), pods: map[types.NamespacedName]types.UID{}, assumed: map[types.UID]string{},
		doubted: map[types.UID]struct{}{}, left: map[types.UID]string{},
		refused: map[types.UID]map[string]time.Time{}, disbelieved: map[types.UID]time.Time{},
		waiting: map[types.NamespacedName]struct{}{}, started: map[types.UID]struct{}{},
		running: map[types.UID]struct{}{}, ranBefore: map[types.UID]time.Time{},
		stale: map[types.UID]struct{}{}, sentAway: map[types.UID]time.Time{},
		providers: map[string]*providerBelief{}, homeOf: map[string]string{}, formerHome: map[string]string{},
	}
}

// observe takes a probe's result in, and says whether the provider's standing changed by it.
func (c *core) observe(id string, o observation) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.providers[id]
	if !ok {
		return false
	}
	before, lostBefore := p.last, !p.lost.IsZero()
	first, suspected := !p.looked, c.suspiciousLocked()
	p.looked, p.last = true, o
	p.tracker.Probe(o.at, o.up, o.took)
	switch {
	case o.up:
		p.misses, p.firstMiss, p.lost = 0, time.Time{}, time.Time{}
	default:
		if p.misses++; p.misses == 1 {
			p.firstMiss = o.at
		}
		if p.misses >= missesUntilLost && p.lost.IsZero() {
			p.lost = p.firstMiss
		}
	}
	if (suspected || c.suspiciousLocked()) && o.at.After(c.suspectedAt) {
		c.suspectedAt = o.at
	}
	return first || lostBefore != !p.lost.IsZero() || before.up != o.up || !sameKubelets(before.kubelets, o.kubelets)
}

func sameKubelets(a, b map[string]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for name, live := range a {
		if b[name] != live {
			return false
		}
	}
	return true
}

// situationOf says what is known of the provider behind a VirtualNode.
func (c *core) situationOf(virtualNode string) situation {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.providers[c.homeOf[virtualNode]]
	if !ok {
		return situation{}
	}
	s := situation{known: true, draining: p.draining || p.closing[virtualNode]}
	// What the last leader saw is not enough: a start moves nothing.
	if p.looked && !p.lost.IsZero() {
		s.lost = p.lost
		// The suspicion ends with the answer of one provider. The others are asked again before anything is believed of
		// them, and have from then on the time that every provider has.
		s.suspended = c.suspiciousLocked() || !p.last.began.After(c.suspectedAt)
		s.believed = p.lost
		if s.believed.Before(c.suspectedAt) {
			s.believed = c.suspectedAt
		}
	}
	return s
}

func (c *core) suspiciousLocked() bool {
	var outages []time.Time
	total := 0
	for _, p := range c.providers {
		if !p.enabled {
			continue
		}
		total++
		if !p.lost.IsZero() {
			outages = append(outages, p.lost)
		}
	}
	return suspicious(outages, total, c.suspicionWindow)
}

// assigned notes that the API shows a pod assigned to a VirtualNode, or that it is to be counted there.
func (c *core) assigned(pod *corev1.Pod, virtualNode string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meetLocked(nameOf(pod), pod.UID)
	delete(c.assumed, pod.UID)
	delete(c.left, pod.UID)
	if _, doubted := c.doubted[pod.UID]; doubted {
		// It was written all the same, nobody knows when: the pod is no longer on its way.
		delete(c.doubted, pod.UID)
		delete(c.sentAway, pod.UID)
	}
	delete(c.waiting, nameOf(pod))
	c.state.Assign(scheduler.Assignment{
		UID: pod.UID, VirtualNode: virtualNode, App: placement.AppOf(pod), Requests: scheduler.PodRequests(&pod.Spec),
	})
}

// meetLocked notes which pod bears a name, and forgets the one that bore it before.
func (c *core) meetLocked(name types.NamespacedName, uid types.UID) {
	if known, ok := c.pods[name]; ok && known != uid {
		c.forgetLocked(name, known)
	}
	c.pods[name] = uid
}

func (c *core) forgetLocked(name types.NamespacedName, uid types.UID) {
	c.state.Release(uid)
	delete(c.assumed, uid)
	delete(c.doubted, uid)
	delete(c.refused, uid)
	delete(c.started, uid)
	delete(c.running, uid)
	delete(c.ranBefore, uid)
	delete(c.stale, uid)
	delete(c.left, uid)
	delete(c.sentAway, uid)
	c.turns.giveBack(uid)
	delete(c.waiting, name)
	delete(c.pods, name)
}

// released notes that a pod is gone or done, and says whether anything was known of it.
func (c *core) released(name types.NamespacedName, uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.pods[name]
	if !ok || (uid != "" && known != uid) {
		return false
	}
	c.forgetLocked(name, known)
	return true
}

// hasLeft notes that a pod on its way takes no room any more at the VirtualNode that it left.
func (c *core) hasLeft(pod *corev1.Pod, virtualNode string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meetLocked(nameOf(pod), pod.UID)
	c.state.Release(pod.UID)
	c.left[pod.UID] = virtualNode
}

// unmapped notes that the mapped address of a pod was removed.
func (c *core) unmapped(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale[uid] = struct{}{}
}

// mappedAnew says, once, that the address of a pod is to be mapped anew.
func (c *core) mappedAnew(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, stale := c.stale[uid]
	delete(c.stale, uid)
	return stale
}

// leftFor says whether a pod has left a VirtualNode for good.
func (c *core) leftFor(uid types.UID, virtualNode string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left[uid] == virtualNode
}

// mayMove says how long a pod must wait until the rate limit lets it move.
func (c *core) mayMove(uid types.UID, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.turns.take(uid, now)
}

// stays notes that a pod need not move, whatever was so before.
func (c *core) stays(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns.giveBack(uid)
}

// isAssumed says whether a decision about the pod is on its way to the cache, and whether it is in doubt.
func (c *core) isAssumed(uid types.UID) (assumed, doubted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, assumed = c.assumed[uid]
	_, doubted = c.doubted[uid]
	return assumed, doubted
}

// doubt notes that a decision may or may not have been written; its place stays reserved.
func (c *core) doubt(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubted[uid] = struct{}{}
}

// decide chooses a provider for the pod and reserves its place, at once.
func (c *core) decide(now time.Time, pod *scheduler.Pod, policy *scheduler.Policy, into *scheduler.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	c.meetLocked(name, pod.UID)
	pod.Refused = c.refused[pod.UID]
	c.state.Decide(now, pod, policy, into)
	if into.VirtualNode == "" {
		c.waiting[name] = struct{}{}
		return
	}
	delete(c.waiting, name)
	delete(c.started, pod.UID)
	delete(c.running, pod.UID)
	c.assumed[pod.UID] = into.VirtualNode
	c.state.Assign(scheduler.Assignment{UID: pod.UID, VirtualNode: into.VirtualNode, App: pod.App, Requests: pod.Requests})
}

// undecide gives the place back, because the decision could not be written.
func (c *core) undecide(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.assumed, uid)
	delete(c.doubted, uid)
	c.state.Release(uid)
}

// refuse remembers that a VirtualNode did not take a pod. If it lacked room, the amount is not believed to be there
// for as long.
func (c *core) refuse(pod *corev1.Pod, virtualNode string, until time.Time, lacksRoom bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused[pod.UID] == nil {
		c.refused[pod.UID] = map[string]time.Time{}
	}
	c.refused[pod.UID][virtualNode] = until
	if p, ok := c.providers[c.homeOf[virtualNode]]; ok {
		p.tracker.PodFailed()
	}
	if lacksRoom {
		id := types.UID("refused/" + virtualNode + "/" + string(pod.UID))
		c.disbelieved[id] = until
		c.state.Assign(scheduler.Assignment{
			UID: id, VirtualNode: virtualNode, Requests: withoutPods(scheduler.PodRequests(&pod.Spec)),
		})
	}
}

func withoutPods(r scheduler.Resources) scheduler.Resources {
	delete(r, corev1.ResourcePods)
	return r
}

// forgetRefusalsLocked lets go of refusals whose time is over, and says whether it did.
func (c *core) forgetRefusalsLocked(now time.Time) bool {
	changed := false
	for uid, byNode := range c.refused {
		for virtualNode, until := range byNode {
			if !until.After(now) {
				delete(byNode, virtualNode)
				changed = true
			}
		}
		if len(byNode) == 0 {
			delete(c.refused, uid)
		}
	}
	for id, until := range c.disbelieved {
		if !until.After(now) {
			delete(c.disbelieved, id)
			c.state.Release(id)
			changed = true
		}
	}
	return changed
}

// refusalsOver lets go of refusals whose time is over, and says whether there were any.
func (c *core) refusalsOver(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forgetRefusalsLocked(now)
}

// takeWaiting returns the pods for which nothing fitted, to be tried again.
func (c *core) takeWaiting() []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]types.NamespacedName, 0, len(c.waiting))
	for name := range c.waiting {
		names = append(names, name)
	}
	return names
}

// remember notes of which provider a VirtualNode was that is gone: a pod says so that was assigned to it.
func (c *core) remember(virtualNode, provider string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.homeOf[virtualNode] == "" && c.formerHome[virtualNode] == "" && provider != "" {
		c.formerHome[virtualNode] = provider
	}
}

// movedAway notes that a pod leaves a VirtualNode. If its provider cannot be reached, it may go on running there; the name
// of the provider is returned if that is new.
func (c *core) movedAway(pod *corev1.Pod, virtualNode string, now time.Time) (unclean string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.left, pod.UID)
	c.sentAway[pod.UID] = now
	c.ranBefore[pod.UID] = lastStart(pod)
	id := c.homeOf[virtualNode]
	p, ok := c.providers[id]
	if !ok {
		return ""
	}
	p.tracker.PodMovedAway()
	if p.unclean || p.lost.IsZero() {
		return ""
	}
	p.unclean = true
	return id
}

// leftUnseen notes that a pod was given up at a provider that cannot be reached, and may go on running there. The name of
// the provider is returned if that is new.
func (c *core) leftUnseen(virtualNode string) (unclean string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.homeOf[virtualNode]
	if p, ok := c.providers[id]; ok && !p.unclean {
		p.unclean = true
		return id
	}
	return ""
}

// settled says whether every provider of the API has been looked at.
func (c *core) settled(providers []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range providers {
		if p, ok := c.providers[id]; !ok || !p.looked {
			return false
		}
	}
	return true
}

// suspects says whether the broker suspects itself.
func (c *core) suspects() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.suspiciousLocked()
}

// podStarted counts the start of a pod once, and says whether it did.
func (c *core) podStarted(pod *corev1.Pod, took time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, counted := c.started[pod.UID]; counted {
		return false
	}
	c.started[pod.UID] = struct{}{}
	if p, ok := c.providers[c.homeOf[pod.Labels[v1alpha1.VirtualNodeLabel]]]; ok {
		p.tracker.PodStarted(took)
	}
	return true
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// ifKnown does something unless a provider is gone, which it does not become meanwhile.
func (c *core) ifKnown(provider string, do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.providers[provider]; known {
		do()
	}
}
