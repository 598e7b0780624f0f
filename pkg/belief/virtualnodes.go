package belief

import "time"

// VirtualNode is what decides about the pods at a VirtualNode.
type VirtualNode struct {
	// Known is false if no provider has the VirtualNode; all else is zero then.
	Known bool
	// Confirmed means that probes of this leader show whether its provider can be reached. Before, nothing speaks for a
	// move, nor for the end of an outage that the leader before saw.
	Confirmed bool
	// UnreachableSince is when its provider became unreachable; zero while it can be reached, and before it is Confirmed.
	UnreachableSince time.Time
	// FailoverFrom is the time from which Failover.After counts: the time in which the broker suspected itself does not.
	FailoverFrom time.Time
	// MovesSuspended means that no pod is moved away from unreachable providers, because the broker suspects itself.
	MovesSuspended bool
	// Draining means that the pods are to leave: the provider is drained, or the VirtualNode is being deleted.
	Draining bool
	// Terminating means that the VirtualNode is being deleted: Liqo ends what is there, whether it moves or not.
	Terminating bool
}

// VirtualNode returns what is known of the provider of a VirtualNode.
func (b *Belief) VirtualNode(name string) VirtualNode {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.providers[b.providerOf[name]]
	if !ok {
		return VirtualNode{}
	}
	vn := VirtualNode{
		Known: true, Confirmed: p.confirmed,
		Draining: p.spec.Draining || p.spec.VirtualNodes[name], Terminating: p.spec.VirtualNodes[name],
	}
	// What the leader before saw is not enough: a restart moves nothing.
	if !p.confirmed || p.unreachableSince.IsZero() {
		return vn
	}
	vn.UnreachableSince, vn.FailoverFrom = p.unreachableSince, p.unreachableSince
	if vn.FailoverFrom.Before(b.suspectedAt) {
		vn.FailoverFrom = b.suspectedAt
	}
	vn.MovesSuspended = b.movesSuspended(p, b.suspicious())
	return vn
}

// movesSuspended reports whether no pod is moved away from an unreachable provider. A suspicion ends with the answer of one
// provider. The others have to be probed again before their pods move.
func (b *Belief) movesSuspended(p *provider, suspects bool) bool {
	return !p.unreachableSince.IsZero() && (suspects || !p.last.Began.After(b.suspectedAt))
}

// ProviderOf returns the provider of a VirtualNode; "" if it is not known.
func (b *Belief) ProviderOf(virtualNode string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.providerOf[virtualNode]
}

// ObserveFormerProvider takes in of which provider a VirtualNode was, as a pod that was assigned to it records. It counts
// only if the VirtualNode is not known.
func (b *Belief) ObserveFormerProvider(virtualNode, provider string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.providerOf[virtualNode] == "" && b.formerProviderOf[virtualNode] == "" && provider != "" {
		b.formerProviderOf[virtualNode] = provider
	}
}

// FormerProviderOf returns the provider of a VirtualNode that is gone; "" if it is not known.
func (b *Belief) FormerProviderOf(virtualNode string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.formerProviderOf[virtualNode]
}

// RemoteNamespace returns the name of a local namespace at the provider of a VirtualNode, "" if it is not mapped there.
// Known is false while that is not known.
func (b *Belief) RemoteNamespace(virtualNode, local string) (remote string, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.providers[b.providerOf[virtualNode]]
	if !ok || p.spec.RemoteNamespaces == nil {
		return "", false
	}
	return p.spec.RemoteNamespaces[local], true
}

// OnePerProvider returns one VirtualNode of each provider, the first by name.
func (b *Belief) OnePerProvider() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := map[string]string{}
	for virtualNode, provider := range b.providerOf {
		if known, ok := first[provider]; !ok || virtualNode < known {
			first[provider] = virtualNode
		}
	}
	names := make([]string, 0, len(first))
	for _, virtualNode := range first {
		names = append(names, virtualNode)
	}
	return names
}
