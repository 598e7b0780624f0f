package state

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// SetTerms records the terms of a consumer, by which its waiting pods take turns with the pods of others.
func (f *Federation) SetTerms(consumer string, terms fairshare.Terms) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if terms.Weight <= 1 && len(terms.Guaranteed) == 0 {
		delete(f.terms, consumer)
		return
	}
	f.terms[consumer] = terms
}

// shares returns the present shares of the consumers in the sum of all grants of the providers.
func (f *Federation) shares() *fairshare.Usage {
	return &fairshare.Usage{Total: f.scheduler.Granted(), Terms: f.terms, Used: f.scheduler.UsedByConsumer}
}

// mostWanting is how many waiting pods of each consumer findWanted looks at.
const mostWanting = 50

// findWanted notes which consumers have pods that wait for free capacity of a provider, with the one of them that requests
// least cpu.
func (f *Federation) findWanted() {
	clear(f.wanted)
	seen := map[string]int{}
	for _, p := range f.pods {
		if !p.unassigned || p.queued.IsHeld() || seen[p.queued.Consumer] >= mostWanting {
			continue
		}
		seen[p.queued.Consumer]++
		for _, provider := range p.queued.FullProviders() {
			if f.wanted[provider] == nil {
				f.wanted[provider] = map[string]*pod{}
			}
			if least := f.wanted[provider][p.queued.Consumer]; least == nil || cpuOf(p) < cpuOf(least) {
				f.wanted[provider][p.queued.Consumer] = p
			}
		}
	}
}

func cpuOf(p *pod) int64 { return p.asks[corev1.ResourceCPU] }

// overtakes returns why a new pod must not take the free capacity of a VirtualNode yet: pods of consumers with smaller
// shares wait for it, and one of them fits there now. They are tried first (queue.Queue). It is "" if there are no such pods.
func (f *Federation) overtakes(consumer string, at scheduler.Place) string {
	wanted := f.wanted[at.Provider]
	if len(wanted) == 0 || len(wanted) == 1 && wanted[consumer] != nil {
		return ""
	}
	room, _ := f.scheduler.Room(at, "")
	shares := f.shares()
	own := shares.Share(consumer)
	for other, least := range wanted {
		share := shares.Share(other)
		if other != consumer && share.Value < own.Value && least.unassigned && room.Fits(least.queued.Demand()) {
			return fmt.Sprintf("has a share of %.3f (%s), and pods of a consumer with %.3f wait for the same provider",
				own.Value, own.Resource, share.Value)
		}
	}
	return ""
}
