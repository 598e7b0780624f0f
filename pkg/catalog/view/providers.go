package view

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/btree"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// degree of the trees: about how many items a node of them has.
const degree = 16

// provider is a provider cluster. It is never changed.
type provider struct {
	shown  api.Provider
	uptime *v1alpha1.Uptime // The informer's.
	// text is searched, publicText for anonymous callers.
	text, publicText string
	// encoded is the JSON of shown, public is the JSON for anonymous callers.
	encoded, public api.Encoded
}

func newProvider(pc *v1alpha1.ProviderCluster, translated *scheduler.Provider) *provider {
	p := &provider{shown: api.ProviderOf(time.Now(), pc, translated), uptime: &pc.Status.KPIs.Uptime}
	p.text = strings.ToLower(strings.Join(append(slices.Collect(maps.Values(p.shown.Attributes)), p.shown.ID), "\n"))
	p.publicText = strings.ToLower(p.shown.ID + "\n" + p.shown.Region)
	return p
}

// matches reports whether a query selects a provider. text is the text of the query, in lower case.
func (q *ProviderQuery) matches(p *provider, text string) bool {
	s, all := &p.shown, p.text
	if q.Public {
		all = p.publicText
	}
	return (q.Ready == nil || *q.Ready == s.Ready) && (q.Enabled == nil || *q.Enabled == s.Enabled) &&
		(q.Region == "" || q.Region == s.Region) && (text == "" || strings.Contains(all, text))
}

// providers are the provider clusters, by id, with their samples.
type providers struct {
	byID      *btree.BTreeG[*provider]
	histories map[string]*history
}

func newProviders() *providers {
	return &providers{
		byID:      btree.NewG(degree, func(x, y *provider) bool { return x.shown.ID < y.shown.ID }),
		histories: map[string]*history{},
	}
}

// get returns nil if there is no such provider.
func (p *providers) get(id string) *provider {
	found, _ := p.byID.Get(&provider{shown: api.Provider{ID: id}})
	return found
}

// set adds a provider, or replaces the provider of that id, which it returns; nil if there was none.
func (p *providers) set(fresh *provider, now time.Time) *provider {
	before, _ := p.byID.ReplaceOrInsert(fresh)
	if before == nil {
		p.histories[fresh.shown.ID] = &history{since: now}
	}
	return before
}

// remove removes a provider and its samples. It reports whether there was one.
func (p *providers) remove(id string) bool {
	_, ok := p.byID.Delete(&provider{shown: api.Provider{ID: id}})
	delete(p.histories, id)
	return ok
}

// page returns up to limit providers (all if 0) after an id, the number of all that match, and whether there are more.
func (p *providers) page(q *ProviderQuery, after string) (items []*provider, total int, more bool) {
	text := strings.ToLower(q.Text)
	exact := text == "" && q.Region == "" && q.Ready == nil && q.Enabled == nil
	begin := ""
	if exact {
		total, begin = p.byID.Len(), after // Nothing needs to be counted.
	}
	p.byID.AscendGreaterOrEqual(&provider{shown: api.Provider{ID: begin}}, func(item *provider) bool {
		if !exact {
			if !q.matches(item, text) {
				return true
			}
			total++
		}
		if item.shown.ID <= after {
			return true
		}
		if q.Limit > 0 && len(items) == q.Limit {
			more = true
			return !exact
		}
		items = append(items, item)
		return true
	})
	return items, total, more
}

// sample adds a sample of each provider, and keeps the last keep samples.
func (p *providers) sample(now time.Time, keep int) {
	p.byID.Ascend(func(item *provider) bool {
		p.histories[item.shown.ID].add(api.SampleOf(&item.shown, now), keep)
		return true
	})
}

// history has the last samples of a provider.
type history struct {
	since   time.Time
	samples []api.Sample
	// oldest is the index of the oldest sample, which the next one replaces once the history is full.
	oldest int
}

func (h *history) add(s api.Sample, keep int) {
	if len(h.samples) < keep {
		h.samples = append(h.samples, s)
		return
	}
	h.samples[h.oldest] = s
	h.oldest = (h.oldest + 1) % keep
}

// all returns the samples, the oldest first.
func (h *history) all() []api.Sample {
	all := make([]api.Sample, 0, len(h.samples))
	return append(append(all, h.samples[h.oldest:]...), h.samples[:h.oldest]...)
}
