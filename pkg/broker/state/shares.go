package state

import (
	"fmt"

	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
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
	return &fairshare.Usage{Total: f.scheduler.Granted(), Terms: f.terms, Used: f.usedBy}
}

// usedBy returns the requests of the counted pods of a consumer; "" is this cluster.
func (f *Federation) usedBy(consumer string) resources.Amounts {
	if consumer != "" {
		return f.scheduler.UsedBy(consumer)
	}
	used := resources.Amounts{}
	for uid, p := range f.pods {
		if p.account != (scheduler.Account{}) {
			continue
		}
		_, requests := f.scheduler.Counted(scheduler.HolderOf(uid))
		used.Add(requests)
	}
	return used
}

// findWanted notes which consumers have pods that wait for free capacity of a provider.
func (f *Federation) findWanted() {
	clear(f.wanted)
	for _, p := range f.pods {
		if !p.unassigned {
			continue
		}
		for _, provider := range p.queued.FullProviders() {
			if f.wanted[provider] == nil {
				f.wanted[provider] = map[string]bool{}
			}
			f.wanted[provider][p.queued.Consumer] = true
		}
	}
}

// overtakes returns why a new pod must not take the free capacity of a provider yet: pods of consumers with smaller shares
// wait for it. They are tried first (queue.Queue). It is "" if there are none.
func (f *Federation) overtakes(consumer, provider string) string {
	wanted := f.wanted[provider]
	if len(wanted) == 0 || len(wanted) == 1 && wanted[consumer] {
		return ""
	}
	shares := f.shares()
	own := shares.Share(consumer)
	for other := range wanted {
		if share := shares.Share(other); other != consumer && share.Value < own.Value {
			return fmt.Sprintf("has a share of %.3f (%s), and pods of a consumer with %.3f wait for the same provider",
				own.Value, own.Resource, share.Value)
		}
	}
	return ""
}
