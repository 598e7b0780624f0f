package state

import (
	"maps"
	"slices"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// VirtualNode is the state that decides about the pods at a VirtualNode.
type VirtualNode struct {
	// Known is false if the provider has no such VirtualNode; all else is zero then.
	Known bool
	// Confirmed means that probes of this leader show whether its provider can be reached. Until then no pod moves, and
	// an outage that the previous leader saw does not end.
	Confirmed bool
	// UnreachableSince is when its provider became unreachable; zero while it can be reached, and before it is
	// Confirmed.
	UnreachableSince time.Time
	// Unusable means that its provider is alive, but cannot be used by the broker, which it may reject: the status of
	// its pods may be old, and does not count against it.
	Unusable bool
	// Problem is why its provider did not answer the last probe; "" unless it is unreachable.
	Problem string
	// FailoverFrom is the time from which Failover.After counts: the time in which the broker suspected itself does
	// not.
	FailoverFrom time.Time
	// MovesSuspended means that no pod is moved away from unreachable providers, because the broker suspects itself.
	MovesSuspended bool
	// Draining means that the pods are to leave: the provider is Drained by an administrator, or the VirtualNode is
	// being deleted.
	Draining, Drained bool
	// Terminating means that the VirtualNode is being deleted: Liqo ends the pods there, whether they move or not.
	Terminating bool
	// Started is when pods have started there, as far as this leader has seen.
	Started Started
}

// Started describes the pods that have started at a VirtualNode: that are no longer Pending there. It is zero if none
// has.
type Started struct {
	// Last is when the last one was seen to have started.
	Last time.Time
	// Assigned is the latest time at which one of them was assigned there.
	Assigned time.Time
}

// providerAt returns the provider of a VirtualNode; nil if it is not known, or has no VirtualNode of that name.
func (f *Federation) providerAt(at scheduler.Place) *provider {
	if p := f.providers[at.Provider]; p != nil {
		if _, has := p.spec.VirtualNodes[at.VirtualNode]; has {
			return p
		}
	}
	return nil
}

// VirtualNode returns the state of a VirtualNode and its provider.
func (f *Federation) VirtualNode(at scheduler.Place) VirtualNode {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.providerAt(at)
	if p == nil {
		return VirtualNode{}
	}
	vn := VirtualNode{
		Known: true, Confirmed: p.confirmed,
		Draining: p.spec.Draining || p.spec.VirtualNodes[at.VirtualNode],
		Drained:  p.spec.Draining, Terminating: p.spec.VirtualNodes[at.VirtualNode],
		Started: p.started[at.VirtualNode], Unusable: p.confirmed && p.unusable(),
	}
	// The state that the previous leader saw is not enough: a restart moves nothing.
	if !p.confirmed || p.unreachableSince.IsZero() {
		return vn
	}
	vn.UnreachableSince, vn.FailoverFrom, vn.Problem = p.unreachableSince, p.failoverFrom, p.last.Problem
	if vn.FailoverFrom.Before(f.suspectedAt) {
		vn.FailoverFrom = f.suspectedAt
	}
	vn.MovesSuspended = f.movesSuspended(p, f.suspicious())
	return vn
}

// movesSuspended reports whether no pod is moved away from an unreachable provider. A suspicion ends with the answer of
// one provider. The others have to be probed again before their pods move.
func (f *Federation) movesSuspended(p *provider, suspects bool) bool {
	return !p.unreachableSince.IsZero() && (suspects || !p.last.Began.After(f.suspectedAt))
}

// RemoteNamespace returns the name of a local namespace at the provider of a VirtualNode, "" if it is not mapped there.
// Known is false while that is not known.
func (f *Federation) RemoteNamespace(at scheduler.Place, local string) (remote string, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.providerAt(at)
	if p == nil || p.spec.RemoteNamespaces == nil {
		return "", false
	}
	return p.spec.RemoteNamespaces[local], true
}

// VirtualNodes returns all VirtualNodes, sorted by provider and name.
func (f *Federation) VirtualNodes() []scheduler.Place {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]scheduler.Place, 0, len(f.providers))
	for _, id := range slices.Sorted(maps.Keys(f.providers)) {
		for _, virtualNode := range slices.Sorted(maps.Keys(f.providers[id].spec.VirtualNodes)) {
			all = append(all, scheduler.Place{Provider: id, VirtualNode: virtualNode})
		}
	}
	return all
}
