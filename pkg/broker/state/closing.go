package state

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

const (
	// closesAfter is how many pods in a row must not have started at a VirtualNode for it to be closed. Each would lose
	// its whole PendingTimeout there, and an empty slice has the best score.
	closesAfter = 3
	// trialInterval is how often one pod is assigned to a closed VirtualNode nevertheless. The first start opens it.
	trialInterval = time.Minute
	// untriedFor is after how long without a tried pod a closed VirtualNode is opened, although a trial was allowed:
	// kube-scheduler binds no pods to the Node while all VirtualNodes are closed.
	untriedFor = 10 * time.Minute
	// maxOwners is how many owners are distinguished among the pods that did not start.
	maxOwners = 10
)

// closing counts the pods that did not start at one VirtualNode, since one has.
type closing struct {
	// failed counts them by owner.
	failed map[string]int
	// since is when the VirtualNode was closed, for the pods of owners; zero is not closed. trialAt is when the next
	// pod may be assigned there nevertheless.
	since   time.Time
	owners  []string
	trialAt time.Time
}

// Closing is since when a VirtualNode accepts no pods because none starts there, and whose pods did not start: with one
// owner it is closed for that owner's pods only.
type Closing struct {
	Since  time.Time
	Owners []string
}

// closingAt returns the closing of a provider's VirtualNode, a new one if there is none.
func (p *provider) closingAt(virtualNode string) *closing {
	c := p.closings[virtualNode]
	if c == nil {
		c = &closing{failed: map[string]int{}}
		p.closings[virtualNode] = c
	}
	return c
}

// restoreClosings restores the closings that the previous leader wrote.
func (p *provider) restoreClosings(status *v1alpha1.ProviderClusterStatus, now time.Time) {
	for i := range status.VirtualNodes {
		if before := status.VirtualNodes[i].Closed; before != nil {
			c := p.closingAt(status.VirtualNodes[i].Name)
			c.since, c.owners, c.trialAt = before.Since.Time, before.Owners, now.Add(trialInterval)
			for _, owner := range before.Owners {
				c.failed[owner] = closesAfter
			}
		}
	}
}

// observeNotStarted counts pods of an owner that did not start in time. One owner's pods close a VirtualNode for that
// owner, two owners' pods close it for all: the reason may be the tenant's own pod spec, such as a node selector that
// no node has.
func (f *Federation) observeNotStarted(p *provider, at scheduler.Place, owner string, pods int) {
	c := p.closingAt(at.VirtualNode)
	if _, known := c.failed[owner]; known || len(c.failed) < maxOwners {
		c.failed[owner] += pods
	}
	all := 0
	for _, count := range c.failed {
		all += count
	}
	switch {
	case all >= closesAfter && len(c.failed) > 1:
		f.close(p, at, slices.Sorted(maps.Keys(c.failed)))
	case c.failed[owner] >= closesAfter:
		f.close(p, at, []string{owner})
	}
}

// ObserveNotMade records that a VirtualNode's provider has not created the pod of a ShadowPod in time, and no other pod
// since. One such pod is enough to close the VirtualNode for its owner, and the pods of two owners close it for all.
func (f *Federation) ObserveNotMade(of *corev1.Pod, at scheduler.Place, owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recordOf(of).start.unmade = true
	if p := f.providerAt(at); p != nil && !p.closings[at.VirtualNode].closure().Concerns(owner) {
		f.observeNotStarted(p, at, owner, closesAfter)
	}
}

func (f *Federation) close(p *provider, at scheduler.Place, owners []string) {
	c := p.closingAt(at.VirtualNode)
	if c.since.IsZero() {
		c.since = f.cfg.Clock.Now()
		c.trialAt = c.since.Add(trialInterval)
	}
	c.owners = owners
	f.claim(p, at)
}

// claim has the scheduler keep pods out of a VirtualNode that is closed, or has a reservation.
func (f *Federation) claim(p *provider, at scheduler.Place) {
	f.scheduler.Claim(at, p.closings[at.VirtualNode].closure(), f.reservationAt(at))
}

// closure returns the closing as the scheduler reads it; nil if the VirtualNode is open.
func (c *closing) closure() *scheduler.Closure {
	if c == nil || c.since.IsZero() {
		return nil
	}
	return &scheduler.Closure{Owners: c.owners, TrialAt: c.trialAt}
}

// observeTrial records that a pod was assigned to a VirtualNode that may be closed for it.
func (f *Federation) observeTrial(p *provider, at scheduler.Place, owner string) {
	if c := p.closings[at.VirtualNode]; c.closure().Concerns(owner) {
		c.trialAt = f.cfg.Clock.Now().Add(trialInterval)
		f.claim(p, at)
	}
}

// open records that a pod has started at a VirtualNode.
func (f *Federation) open(p *provider, at scheduler.Place) {
	c := p.closings[at.VirtualNode]
	delete(p.closings, at.VirtualNode)
	if c.closure() != nil {
		f.claim(p, at)
		p.changed = f.queue.Open(at)
	}
}

// openUntried opens the VirtualNodes of a provider at which no pod was tried for long, and reports whether it did. The
// time in which the provider takes no pods for another reason does not count.
func (f *Federation) openUntried(p *provider, id string) (opened bool) {
	now := f.cfg.Clock.Now()
	for virtualNode, c := range p.closings {
		switch {
		case c.closure() == nil:
		case !p.last.Answered || !p.scheduled.Ready || !p.scheduled.Schedulable():
			if now.After(c.trialAt) {
				c.trialAt = now
			}
		case now.Sub(c.trialAt) >= untriedFor:
			f.open(p, scheduler.Place{Provider: id, VirtualNode: virtualNode})
			opened = true
		}
	}
	return opened
}

// closedOf returns the VirtualNodes of a provider that are closed.
func (p *provider) closedOf() map[string]Closing {
	closed := map[string]Closing{}
	for virtualNode, c := range p.closings {
		if !c.since.IsZero() {
			closed[virtualNode] = Closing{Since: c.since, Owners: slices.Clone(c.owners)}
		}
	}
	return closed
}
