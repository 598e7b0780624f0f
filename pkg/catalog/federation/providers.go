package federation

import (
	"maps"
	"strings"
	"time"

	"github.com/google/btree"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/follow"
)

// providers are the provider clusters, by id, with what they advertise and how they did.
type providers struct {
	byID      *btree.BTreeG[*known]
	histories map[string]*history
	// advertised are the labels of VirtualNodes, by provider, whether or not it is in byID.
	advertised *follow.Groups[map[string]string]
}

func newProviders() *providers {
	return &providers{
		byID:       btree.NewG(degree, func(x, y *known) bool { return x.shown.ID < y.shown.ID }),
		histories:  map[string]*history{},
		advertised: follow.NewGroups[map[string]string](),
	}
}

// get returns nil if there is no such provider.
func (p *providers) get(id string) *known {
	found, _ := p.byID.Get(&known{shown: api.Provider{ID: id}})
	return found
}

// set puts a provider in place of what there was, which it returns, or nil.
func (p *providers) set(fresh *known, now time.Time) *known {
	before, _ := p.byID.ReplaceOrInsert(fresh)
	if before == nil {
		p.histories[fresh.shown.ID] = &history{since: now}
	}
	return before
}

// remove forgets a provider and how it did; it says whether there was one.
func (p *providers) remove(id string) bool {
	_, ok := p.byID.Delete(&known{shown: api.Provider{ID: id}})
	delete(p.histories, id)
	return ok
}

// labelsOf are what a provider advertises; of two VirtualNodes that differ, the last by name wins.
func (p *providers) labelsOf(provider string) map[string]string {
	labels := map[string]string{}
	for _, advertised := range p.advertised.Of(provider) {
		maps.Copy(labels, advertised)
	}
	return labels
}

// page returns up to limit providers (all if 0) after an id, how many match in all, and whether there are more.
func (p *providers) page(q *ProviderQuery, after string) (items []*known, total int, more bool) {
	text := strings.ToLower(q.Text)
	exact := text == "" && q.Region == "" && q.Ready == nil && q.Enabled == nil
	begin := ""
	if exact {
		total, begin = p.byID.Len(), after
	}
	p.byID.AscendGreaterOrEqual(&known{shown: api.Provider{ID: begin}}, func(k *known) bool {
		if !exact {
			if !q.matches(k, text) {
				return true
			}
			total++
		}
		if k.shown.ID <= after {
			return true
		}
		if q.Limit > 0 && len(items) == q.Limit {
			more = true
			return !exact
		}
		items = append(items, k)
		return true
	})
	return items, total, more
}

// sample notes how all providers do at a moment, and keeps so many samples of each.
func (p *providers) sample(now time.Time, keep int) {
	p.byID.Ascend(func(k *known) bool {
		p.histories[k.shown.ID].add(sampleOf(&k.shown, now), keep)
		return true
	})
}
